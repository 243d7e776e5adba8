"""Shared code of tasks about documents: sections, units, spans of answers."""
