"""The parts of a task; see `spec.TaskSpec`."""

from etcmodel import extras

extras.require_extra("tasks")
