"""Shared code of ReadTwice's tasks: segments of documents, and mentions."""
