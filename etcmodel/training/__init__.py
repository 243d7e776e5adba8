"""The training engine: the Model Garden's, on Keras 2."""

from etcmodel import extras

extras.require_extra("tasks")
