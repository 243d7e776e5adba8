"""Timed comparisons, and what small models learn."""

import os

# Before TensorFlow starts: without its messages, of which every process of a
# benchmark would print some.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
