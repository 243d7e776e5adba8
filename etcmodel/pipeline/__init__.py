"""What a task is made of; see `spec.TaskSpec`."""

from etcmodel import extras

extras.require_extra("tasks")
