"""The commands of `python -m etcmodel`."""

from etcmodel import extras

extras.require_extra("tasks")
