"""What the pipelines of the tasks share."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.feature_utils.tokenizers import make_tokenizer
from etcmodel.tasks import registry


def to_bytes(text: str) -> bytes:
    """A string as UTF-8; "?" for what has none, such as lone surrogates.

    Args:
        text: the string.

    Returns:
        Its bytes.
    """
    return text.encode("utf-8", "replace")


def string_vector(texts: Sequence[str]) -> np.ndarray:
    """Strings as a tensor can hold them.

    Args:
        texts: the strings.

    Returns:
        `<object>[texts]` of bytes.
    """
    return np.array([to_bytes(text) for text in texts], dtype=object)


def string_matrix(rows: Sequence[Sequence[str]]) -> np.ndarray:
    """Lists of strings, filled up with empty ones to one length.

    Example: `[["a", "b"], ["c"]]` gives `[[b"a", b"b"], [b"c", b""]]`.

    Args:
        rows: the lists; at least one.

    Returns:
        `<object>[rows, longest]` of bytes.
    """
    width = max(len(row) for row in rows)
    return np.array(
        [
            [to_bytes(text) for text in row] + [b""] * (width - len(row))
            for row in rows
        ],
        dtype=object,
    ).reshape(len(rows), width)


def make_builder(
    builder_class: Callable, config: Any, vocab_file: str
) -> tf.Module:
    """Makes a task's feature builder for a vocabulary.

    Args:
        builder_class: makes the builder from `config` and a tokenizer.
        config: sizes of the features.
        vocab_file: a WordPiece vocabulary or a SentencePiece model.

    Returns:
        The builder.

    Raises:
        UserError: the vocabulary or a size cannot be used.
    """
    try:
        return builder_class(config, make_tokenizer(vocab_file))
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise UserError(
            f"--vocab_file={vocab_file} cannot be used: {error}"
        ) from error


def _without_stack(message: str) -> str:
    """What is wrong, in one line, without TensorFlow's stack of calls."""
    lines = [
        line
        for line in message.splitlines()
        if line
        and not line[0].isspace()
        and not line.startswith(("Graph execution error", "Detected at node"))
    ]
    return " ".join(lines) or message


class BuilderEncoder(registry.RecordEncoder):
    """A record encoder on top of a task's feature builder.

    Attributes:
        builder: the feature builder; a module with a `tokenizer`.
        config: sizes of the features.
    """

    def __init__(self, builder: tf.Module, specs: Sequence):
        """Creates the encoder.

        Args:
            builder: the feature builder.
            specs: the `tf.TensorSpec` of each argument of its `build`.
        """
        self.builder = builder
        self.config = builder.config
        self.vocab_size = int(builder.tokenizer.vocab_size)
        self.tokenizer_kind = builder.tokenizer.kind
        self.special_ids = builder.tokenizer.special_ids
        self._specs = list(specs)
        self._build = tf.function(builder.build, input_signature=self._specs)

    def run_builder(self, records: Sequence[Any], inputs: Sequence[np.ndarray]):
        """What `builder.build` makes of a batch.

        Args:
            records: the records; for messages.
            inputs: the arguments of `build`.

        Returns:
            Its result.

        Raises:
            RecordError: it failed.
        """
        try:
            return self._build(
                *(
                    tf.constant(value, spec.dtype)
                    for value, spec in zip(inputs, self._specs, strict=True)
                )
            )
        except tf.errors.OpError as error:
            raise records[0].error(
                "cannot be encoded",
                problem=_without_stack(error.message),
            ) from error

    def token_texts(self, ids: tf.Tensor) -> list[str]:
        """Texts of tokens, `<int>[n]`."""
        texts = self.builder.tokenizer.id_to_token(ids).numpy()
        return [text.decode("utf-8", "replace") for text in texts]


def used_length(is_used: tf.Tensor) -> int:
    """Length of a vector without what is not used at its end.

    Example: `[True, False, True, False]` gives 3.

    Args:
        is_used: `<bool>[n]`.

    Returns:
        The length.
    """
    positions = np.flatnonzero(is_used.numpy())
    return int(positions[-1]) + 1 if positions.size else 0
