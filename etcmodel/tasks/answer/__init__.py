"""Answers to questions about users' own documents."""
