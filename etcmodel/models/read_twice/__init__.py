"""ReadTwice: reads a text twice, the second time with a memory of it."""
