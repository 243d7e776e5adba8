"""Base classes of a task, and its stored examples; see `spec.TaskSpec`."""

from etcmodel import extras

extras.require_extra("tasks")
