"""ReadTwice's question answering on documents of any length."""
