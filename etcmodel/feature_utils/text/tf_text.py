"""Imports TensorFlow Text, or names the extra that installs it."""

from etcmodel import extras

extras.require("tensorflow_text")

# isort: split
import tensorflow_text as tf_text  # noqa: E402

__all__ = ["tf_text"]
