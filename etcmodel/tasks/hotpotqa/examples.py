"""What a stored HotpotQA example holds beside EtcFeatures.

| name | what |
| --- | --- |
| `example_id`, `question` | as in the data file |
| `segments` | titles and sentences, see `HotpotQAContext` |
| `paragraph_sizes` | how many of them each paragraph has |
| `global_segments`, `long_starts`, `long_ends` | see `HotpotQAContext` |
| `answer`, `fact_titles`, `fact_sentences` | what the data file tells |
| `supporting_facts`, `answer_type`, `answer_begins`, `answer_ends` | labels |

The last two rows are missing where the answer is not known.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.feature_utils.etc_features import trim_padding
from etcmodel.tasks.hotpotqa.features import HotpotQAContext
from etcmodel.tasks.hotpotqa.labels import HotpotQALabels
from etcmodel.tasks.pipeline_lib import to_bytes

CONTEXT_SPEC = {
    "segments": tf.io.RaggedFeature(tf.string),
    **{
        name: tf.io.RaggedFeature(tf.int64)
        for name in (
            "paragraph_sizes",
            "global_segments",
            "long_starts",
            "long_ends",
        )
    },
}
LABEL_SPEC = {
    "answer_type": tf.io.FixedLenFeature([], tf.int64),
    **{
        name: tf.io.RaggedFeature(tf.int64)
        for name in ("supporting_facts", "answer_begins", "answer_ends")
    },
}
# What evaluation reads on the device, see `evaluation`.
EVALUATION_SPEC = {
    "example_id": tf.io.FixedLenFeature([], tf.string),
    **{
        name: tf.io.RaggedFeature(tf.int64)
        for name in ("global_segments", "long_starts", "long_ends")
    },
}


def on_host(context: HotpotQAContext) -> HotpotQAContext:
    """Lists and arrays instead of tensors: much faster to take apart.

    Args:
        context: that of a batch, as eager tensors.

    Returns:
        `segments` and `paragraph_sizes` as lists, the others as NumPy arrays.
    """
    return HotpotQAContext(
        segments=context.segments.to_list(),
        paragraph_sizes=context.paragraph_sizes.to_list(),
        global_segments=context.global_segments.numpy(),
        starts=context.starts.numpy(),
        ends=context.ends.numpy(),
    )


def context_values(context: HotpotQAContext, index: int) -> dict[str, Any]:
    """What is stored of the context of one record.

    Args:
        context: that of a batch, from `on_host`.
        index: which record.

    Returns:
        name -> values, as `etc_features.to_example` takes them.
    """
    return {
        "segments": context.segments[index],
        "paragraph_sizes": context.paragraph_sizes[index],
        **{
            name: trim_padding(values[index], -1)
            for name, values in (
                ("global_segments", context.global_segments),
                ("long_starts", context.starts),
                ("long_ends", context.ends),
            )
        },
    }


def record_values(
    record: HotpotQARecord, labels: HotpotQALabels | None
) -> dict[str, Any]:
    """What is stored of one record itself, and of its labels.

    Args:
        record: the record.
        labels: its labels, if the answer is known.

    Returns:
        name -> values, as `etc_features.to_example` takes them.
    """
    values: dict[str, Any] = {
        "example_id": to_bytes(record.id),
        "question": to_bytes(record.question),
    }
    if labels is None:
        return values
    facts = record.supporting_facts or ()
    return {
        **values,
        "answer": to_bytes(record.answer),
        "fact_titles": [to_bytes(title) for title, _ in facts],
        "fact_sentences": [sentence for _, sentence in facts],
        "supporting_facts": labels.supporting_facts,
        "answer_type": labels.answer_type,
        "answer_begins": labels.begins,
        "answer_ends": labels.ends,
    }


def dense(
    stored: Mapping[str, tf.RaggedTensor], name: str, length: int | None
) -> tf.Tensor:
    """A stored list with its padding of -1, `<int32>[batch, length]`."""
    return tf.cast(
        stored[name].to_tensor(default_value=-1, shape=[None, length]), tf.int32
    )


def parse_context(
    stored: Mapping[str, tf.RaggedTensor],
    long_length: int | None,
    global_length: int | None,
) -> HotpotQAContext:
    """The context of a batch of stored examples; graph code.

    Args:
        stored: what `CONTEXT_SPEC` names.
        long_length: length of the long input.
        global_length: length of the global input.

    Returns:
        The context.
    """
    return HotpotQAContext(
        segments=stored["segments"].with_row_splits_dtype(tf.int64),
        paragraph_sizes=stored["paragraph_sizes"].with_row_splits_dtype(
            tf.int64
        ),
        global_segments=dense(stored, "global_segments", global_length),
        starts=dense(stored, "long_starts", long_length),
        ends=dense(stored, "long_ends", long_length),
    )
