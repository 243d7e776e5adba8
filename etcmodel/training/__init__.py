"""Trains and evaluates with the TensorFlow Model Garden; needs Keras 2."""

from etcmodel import extras

extras.require_extra("tasks")
