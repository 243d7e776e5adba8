"""A demo: a generated corpus, and a small ETC trained on it."""

from etcmodel import extras

extras.require("tensorflow_text")
