"""Pictures of inputs and of attention."""

from etcmodel import extras

extras.require_extra("tasks")
