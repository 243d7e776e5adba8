"""Trains and uses models for your own documents in Python."""

from etcmodel import extras

extras.require_extra("tasks")
