"""Classifies users' own documents."""
