"""TensorFlow Text, or an error that names the extra that brings it."""

from etcmodel import extras

extras.require("tensorflow_text")

# isort: split
import tensorflow_text as tf_text  # noqa: E402

__all__ = ["tf_text"]
