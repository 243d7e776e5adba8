"""The tasks, one folder each."""

from etcmodel import extras

extras.require_extra("tasks")
