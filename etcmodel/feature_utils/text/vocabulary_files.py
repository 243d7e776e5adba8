"""Reads vocabulary files."""

import os

import tensorflow as tf
from absl import logging


def read_file(path: str | os.PathLike, what: str) -> bytes:
    """Reads a vocabulary file; errors say that `what` was expected.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the path is a folder, or the file is empty or cannot be
            read.
    """
    path = os.fspath(path)
    if tf.io.gfile.isdir(path):
        raise ValueError(f"{path} is a folder: expected {what}.")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = file.read()
    except tf.errors.NotFoundError:
        raise FileNotFoundError(
            f"The file {path} does not exist: expected {what}."
        ) from None
    except tf.errors.OpError as error:
        raise ValueError(
            f"Cannot read {path}: {error.message}. Expected {what}."
        ) from error
    if not content:
        raise ValueError(f"The file {path} is empty: expected {what}.")
    return content


def is_text(content: bytes) -> bool:
    """Returns whether bytes are UTF-8 text, unlike SentencePiece models."""
    try:
        return "\x00" not in content.decode("utf-8")
    except UnicodeDecodeError:
        return False


def load_vocab(vocab_file: str | os.PathLike) -> list[str]:
    r"""Reads the tokens of a WordPiece vocabulary, one per line.

    The id of a token is its line number, from 0. Lines end with `\n` or `\r\n`.
    White space around tokens is stripped, unless the token is only white space,
    such as U+3000. If a token is repeated, text gets the id of its last line,
    and a warning is logged.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8 text, or has a blank line.
    """
    path = os.fspath(vocab_file)
    what = "a WordPiece vocabulary (text, one token per line)"
    content = read_file(path, what)
    if not is_text(content):
        raise ValueError(
            f"The file {path} is binary, or not UTF-8 text: expected {what}."
        )
    text = content.decode("utf-8")
    # Other line separators can be tokens. "\r" can be a token unless lines end
    # in "\r\n".
    lines = text.rstrip("\r\n").split("\n")
    if lines[0].endswith("\r"):
        lines = [line.removesuffix("\r") for line in lines]
    tokens = [line.strip() or line for line in lines]
    if "" in tokens:
        raise ValueError(
            f"Line {tokens.index('') + 1} of the vocabulary {path} is blank: "
            "expected a token on every line."
        )
    num_repeated = len(tokens) - len(set(tokens))
    if num_repeated:
        logging.warning(
            "%s has %d repeated tokens. As in BERT's tokenizers, text gets the "
            "id of a token's last line.",
            path,
            num_repeated,
        )
    return tokens
