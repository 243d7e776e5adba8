"""The training engine, based on the Model Garden; needs Keras 2."""

from etcmodel import extras

extras.require_extra("tasks")
