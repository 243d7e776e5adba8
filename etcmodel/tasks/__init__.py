"""The tasks, and the commands that run them."""
