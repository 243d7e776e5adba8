"""Imports TensorFlow Text, or raises an error that says how to install it."""

from etcmodel import extras

extras.require("tensorflow_text")

# isort: split
import tensorflow_text as tf_text  # noqa: E402

__all__ = ["tf_text"]
