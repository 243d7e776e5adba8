"""Writes and loads SavedModels: signatures, files and warm-up requests."""

from etcmodel import extras

extras.require_extra("tasks")
