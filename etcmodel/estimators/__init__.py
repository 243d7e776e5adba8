"""Python API to train and use models on users' own documents."""

from etcmodel import extras

extras.require_extra("tasks")
