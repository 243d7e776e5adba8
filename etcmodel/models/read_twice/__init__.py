"""ReadTwice: a second read with a memory of the whole document."""
