"""The tasks, and the commands that run them."""

from etcmodel import extras

extras.require(
    "docstring_parser",
    "ijson",
    "msgspec",
    "official",
    "tensorflow_text",
    "tf_keras",
    "tqdm",
    "yaml",
)
