"""Python API: trains and uses models for users' own documents."""

from etcmodel import extras

extras.require_extra("tasks")
