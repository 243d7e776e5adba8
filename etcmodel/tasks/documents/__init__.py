"""Shared by the tasks about documents: sections, units, spans of answers."""
