"""Validates the inputs of encoders."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from etcmodel.feature_utils import structure_checks
from etcmodel.models.etc.config import EtcConfig
from etcmodel.models.read_twice.config import ReadTwiceConfig
from etcmodel.ops import checks

ETC_EXAMPLE = (
    "Example of five long and two global tokens: token ids [[23, 24, 9, 25, "
    "9]] and [[1, 1]], below the configuration's vocab_size."
)
SEGMENTS_EXAMPLE = (
    "Example of a document of two segments: token_ids [[101, 23, 24], [101, "
    "25, 0]], block_ids [1, 1], block_pos [1, 2], annotation_begins and "
    "annotation_ends [[1], [1]], annotation_labels [[7], [0]]."
)
_BLOCK_INPUTS = (
    "token_ids",
    "block_ids",
    "block_pos",
    "att_mask",
    "annotation_begins",
    "annotation_ends",
    "annotation_labels",
)


def check_inputs(
    inputs: Any, config: EtcConfig | ReadTwiceConfig | None = None
):
    """Checks the ids, breakpoints and positions in an encoder's inputs.

    The encoders check their inputs, too, but XLA ignores these checks and
    computes wrong results for ids that are out of range. Before you use
    `jit_compile=True` or a TPU, check the data set:

        model.fit(check_inputs(dataset, config))

    Args:
        inputs: dict of an encoder's inputs by name, with a batch dimension; or
            a `tf.data.Dataset` of such dicts, or of tuples that start with such
            a dict. Other names are ignored.
        config: the configuration, which limits the ids; None to check only the
            structure.

    Returns:
        The inputs. A data set checks each batch when the batch is read.

    Raises:
        ValueError: an input is wrong; the message has the row, the expected
            value, and a correct example. In a graph, and when a data set is
            read, the error is a `tf.errors.InvalidArgumentError`.
    """
    if isinstance(inputs, tf.data.Dataset):

        def check(*element):
            first = check_inputs(element[0], config)
            return (first, *element[1:]) if element[1:] else first

        return inputs.map(check)
    features = {name: tf.convert_to_tensor(x) for name, x in inputs.items()}
    if isinstance(config, ReadTwiceConfig):
        example = SEGMENTS_EXAMPLE
        wrong = segment_checks(
            config, features["token_ids"], features.get("position_ids")
        ) + block_checks(**{name: features.get(name) for name in _BLOCK_INPUTS})
    else:
        wrong, example = structure_checks.of_features(features)
        if config is not None:
            wrong = wrong + etc_checks(config, features)
            example = example or ETC_EXAMPLE
    return dict(
        zip(
            features,
            checks.guard(wrong, example, *features.values()),
            strict=True,
        )
    )


def etc_checks(
    config: EtcConfig, inputs: Mapping[str, Any]
) -> list[checks.Check]:
    """Checks the inputs of `EtcModel`; skips inputs that are None."""
    limits = {
        "token_ids": config.vocab_size,
        "token_type_ids": config.segment_vocab_size,
        "position_ids": config.max_absolute_position_embeddings,
        "relative_att_ids": config.relative_vocab_size,
        "att_mask": 2,
    }
    found = []
    for name, value in inputs.items():
        limit = next(
            (x for kind, x in limits.items() if name.endswith(kind)), 0
        )
        if limit and tf.is_tensor(value) and value.dtype != tf.bool:
            found.append(checks.in_range(name, value, 0, limit - 1))
    return found


def segment_checks(
    config: ReadTwiceConfig, token_ids, position_ids
) -> list[checks.Check]:
    """Checks the token ids and positions of segments."""
    found = [checks.in_range("token_ids", token_ids, 0, config.vocab_size - 1)]
    if position_ids is not None:
        found.append(
            checks.in_range(
                "position_ids", position_ids, 0, config.max_seq_length - 1
            )
        )
    return found


def block_checks(
    token_ids,
    block_ids,
    block_pos,
    att_mask,
    annotation_begins,
    annotation_ends,
    annotation_labels,
) -> list[checks.Check]:
    """Checks the inputs of `ReadTwiceModel`; skips inputs that are None."""
    found = []
    most = tf.int32.max
    if att_mask is not None and att_mask.dtype != tf.bool:
        found.append(checks.in_range("att_mask", att_mask, 0, 1))
    if block_ids is not None:
        expected = "expected the number of a document, from 1, or 0 for padding"
        found.append(checks.in_range("block_ids", block_ids, 0, most, expected))
    if block_pos is not None and block_ids is not None:
        expected = "expected the number of a segment in its document, from 1"
        found.append(
            checks.in_range(
                "block_pos",
                block_pos,
                1,
                most,
                expected,
                is_used=block_ids > 0,
            )
        )
    if annotation_labels is None:
        return found
    expected = "expected the number of an entity, from 1, or 0 for padding"
    found.append(
        checks.in_range(
            "annotation_labels", annotation_labels, 0, most, expected
        )
    )
    last = tf.shape(token_ids)[1] - 1
    is_used = annotation_labels > 0
    spans = {
        "annotation_begins": annotation_begins,
        "annotation_ends": annotation_ends,
    }
    expected = "expected the index of a token of the segment, from 0"
    for name, value in spans.items():
        if value is not None:
            found.append(
                checks.in_range(name, value, 0, tf.maximum(last, 0), expected)
            )
    if all(x is not None for x in spans.values()):
        begins, ends = (tf.cast(x, tf.int32) for x in spans.values())
        is_reversed = (ends < begins) & is_used
        found.append(
            checks.Check(
                "annotation_ends",
                "expected the last token of a mention, at or after its first",
                tf.reduce_any(is_reversed, axis=1),
                tf.reduce_max(tf.where(is_reversed, ends, 0), axis=1),
            )
        )
    return found
