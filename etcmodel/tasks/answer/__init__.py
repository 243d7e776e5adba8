"""Answers questions about users' own documents."""
