"""What a task is made of; see `spec.TaskSpec`."""
