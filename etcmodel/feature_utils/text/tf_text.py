"""Imports TensorFlow Text; if it is missing, the error names the extra."""

from etcmodel import extras

extras.require("tensorflow_text")

# isort: split
import tensorflow_text as tf_text  # noqa: E402

__all__ = ["tf_text"]
