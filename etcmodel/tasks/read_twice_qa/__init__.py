"""Questions about documents of any length, answered by ReadTwice."""
