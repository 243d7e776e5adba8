"""Benchmarks: time, memory, and the metrics of small trained models."""

import os

# Set before TensorFlow is imported, because each process of a benchmark would
# print its messages.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
