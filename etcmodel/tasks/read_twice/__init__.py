"""Shared by the tasks of ReadTwice: segments of documents, and mentions."""
