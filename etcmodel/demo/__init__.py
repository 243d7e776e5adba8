"""A demo that trains a small ETC on a generated corpus."""

from etcmodel import extras

extras.require("tensorflow_text")
