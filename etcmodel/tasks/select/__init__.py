"""Selects sentences or paragraphs of users' own documents."""
