"""ETC and ReadTwice for TensorFlow: long and structured documents in Keras."""

__version__ = "0.1.0"
