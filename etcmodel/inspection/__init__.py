"""Draws inputs, attention and predictions."""

from etcmodel import extras

extras.require_extra("tasks")
