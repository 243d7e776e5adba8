"""A small task for tests: find the longest word of a text.

Texts are split into windows that fit into the long input. The model computes a
logit for every token. A record's answer is the word with the highest logit, or
none if that logit is not above a threshold.
"""

import dataclasses
import json
import sys

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import layout
from etcmodel.feature_utils.text import tokenizers
from etcmodel.models.heads import make_logits_layer
from etcmodel.pipeline import example_maker
from etcmodel.pipeline import example_schema
from etcmodel.pipeline import task_model
from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.preprocessor import Encoded
from etcmodel.pipeline.preprocessor import EtcPreprocessor
from etcmodel.pipeline.preprocessor import Labelled
from etcmodel.pipeline.preprocessor import count_cut
from etcmodel.pipeline.raw_inputs import RawInput
from etcmodel.pipeline.spec import Experiment
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import Tuned
from etcmodel.readers.json_stream import read_json_lines
from etcmodel.readers.records import Format
from etcmodel.readers.records import Record
from testing import helpers

VOCAB = "a bb ccc dddd eeeee"


class ToyRecord(Record, frozen=True):
    """A text and its longest word, "" for a text without words."""

    id: str
    text: str
    answer: str | None = None


FORMAT = Format(
    ToyRecord, "a text", read_json_lines, lambda record, split: None
)


def gold(record: ToyRecord) -> str | None:
    return record.answer


def score(predictions, gold):
    right = [predictions.get(name) == answer for name, answer in gold.items()]
    given = [bool(predictions.get(name)) for name in gold]
    return {"right": float(np.mean(right)), "given": float(np.mean(given))}


def write_predictions(predictions, stream):
    json.dump(predictions, stream)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The preprocessing configuration.

    Attributes:
        long_length: number of words in a window.
        global_length: length of the global input.
    """

    long_length: int = 4
    global_length: int = 2


@dataclasses.dataclass
class ModelOptions:
    """Model options.

    Attributes:
        scale: factor of the logits.
    """

    scale: float = 1.0


@dataclasses.dataclass
class Options:
    """Decoding options.

    Attributes:
        threshold: the logit that an answer must exceed; None for 0.
    """

    threshold: float | None = None


class ToyPreprocessor(EtcPreprocessor):
    """Encodes a text as one section of words, with one global token."""

    INPUTS = {"text": RawInput(tf.string, ("records",))}
    REQUEST = {"text": np.array([b"a bb a a ccc"], dtype=object)}
    LAYOUT = layout.LayoutSpec(
        [
            layout.Section(
                "words",
                1,
                unit_global=layout.GlobalToken(1, 1),
                cut="windows",
            )
        ],
        links=[layout.Link("ties", "words", "words", label="own")],
        values=[
            layout.Value("words", "words", pad=-1),
            # Two values: the word's length divided by 5, and 1 for a word.
            layout.Value(
                *("looks", "words"), dtype=tf.float32, shape=(2,), embed=True
            ),
        ],
    )
    SCHEMA = example_schema.etc_schema(
        LAYOUT.encoder_inputs,
        # The index of each token's word in the text.
        words=example_schema.Field("long", example_schema.DECODING, pad=-1),
        text=example_schema.Field("one", example_schema.TEXT, tf.string),
        text_words=example_schema.Field("list", example_schema.TEXT, tf.string),
        # The index of the longest word's token; -1 if this window lacks it.
        longest=example_schema.Field("one", example_schema.LABEL),
    )
    rows_at_once = 2

    def build(self, text):
        """Makes windows of words; each word is one token."""
        words = tf.strings.split(text)
        words = words.with_row_splits_dtype(tf.int64)
        ids = self.tokenizer.tokenize(words.values)[:, :1]
        ids = words.with_values(ids.to_tensor(shape=[None, 1])[:, 0])
        numbers = tf.ragged.range(words.row_lengths(), row_splits_dtype="int64")
        lengths = tf.cast(tf.strings.length(words.values), tf.float32) / 5
        looks = tf.stack([lengths, tf.ones_like(lengths)], axis=1)
        made = self.engine(
            {"words": layout.one_unit(ids)},
            {"ties": layout.one_unit(numbers * 0)},
            {
                "words": layout.one_unit(numbers),
                "looks": layout.one_unit(words.with_values(looks)),
            },
        )
        return Encoded(
            layout=made,
            context={"words": made.values["words"]},
            text={"text": text, "text_words": words},
        )

    @staticmethod
    def raw(record):
        return {"text": record.text}

    def labels(self, record, view, split):
        """Returns labels; drops training windows without the longest word."""
        size = self.config.long_length
        labels = [{} for _ in range(view.number)]
        if split != "predict":
            at = record.text.split().index(record.answer)
            labels = [
                {"longest": at - i * size if i == at // size else -1}
                for i in range(view.number)
            ]
        if split == "train":
            labels = [x if x["longest"] >= 0 else None for x in labels]
        return Labelled(
            labels,
            {},
            count_cut(view, {"words": (None, "units")}),
        )

    def describe(self, record):
        return [("answer", record.answer)]


class Model(task_model.EtcTaskModel):
    """Predicts the longest word with a dense layer."""

    LOSSES = ("word",)
    METRICS = {"accuracy": ("logits", "label")}

    def encoder_options(self):
        return {"structure": ToyPreprocessor.LAYOUT, "flat_sequence": True}

    def head(self, config):
        layer = make_logits_layer(1, config.initializer_range, "words")
        return lambda encoded, inputs: {
            "logits": self.model_options.scale
            * layer(encoded["long_output"])[..., 0]
        }

    def labels(self, features, fields):
        """Returns the label: the longest word's token, else the first token."""
        return {**fields, "label": tf.maximum(fields["longest"], 0)}

    def losses(self, outputs, labels):
        return {
            "word": tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels["label"], outputs["logits"]
            )
        }

    def select_candidates(self, outputs, features, context):
        """Returns the best word of each window."""
        del features
        logits = tf.where(context["words"] >= 0, outputs["logits"], -1e9)
        best = tf.argmax(logits, axis=1)
        return {
            "word": tf.gather(context["words"], best, batch_dims=1),
            "logit": tf.reduce_max(logits, axis=1),
        }

    def decode(self, chosen, owner, text):
        """Returns the best window's word if its logit exceeds the threshold."""
        words = text["text_words"]
        batch = words.nrows(tf.int32)
        best = tf.math.unsorted_segment_max(chosen["logit"], owner, batch)
        is_best = tf.equal(chosen["logit"], tf.gather(best, owner))
        word = tf.math.unsorted_segment_max(
            tf.where(is_best, chosen["word"], -1), owner, batch
        )
        threshold = self.options.threshold or 0.0
        is_given = (word >= 0) & (best > threshold)
        index = tf.cast(words.row_starts(), tf.int32) + tf.maximum(word, 0)
        found = tf.gather(tf.pad(words.values, [[0, 1]]), index)
        return {"answer": tf.where(is_given, found, ""), "logit": best}

    def to_prediction(self, answers, text):
        """Returns the answer of a text that has words."""
        words = tf.compat.as_text(text["text"]).split()
        return answers["answer"].decode() if words else ""


TASK = TaskSpec(
    name="toy",
    summary="the longest word",
    dataset=sys.modules[__name__],
    preprocessing_config=Sizes,
    preprocessor=f"{__name__}:ToyPreprocessor",
    model=f"{__name__}:Model",
    model_options=ModelOptions,
    options=Options,
    recipe={
        "num_examples": 100,
        "epochs": 2,
        "batch_size": 4,
        "learning_rate": 0.01,
        "best_metric": "right",
        "preset": "tiny",
    },
    tuned=Tuned("threshold", (0.0, 1.0, 2.0), default=1.0, metric="right"),
    experiments={
        "toy/toy": Experiment("toy"),
        "toy/scaled": Experiment(
            "twice", {"scale": 2.0, "threshold": 1.5, "hidden_size": 32}
        ),
    },
)


def _write_vocab(directory):
    tokens = [*tokenizers.WORDPIECE_RESERVED_TOKENS, *VOCAB.split()]
    return helpers.write_vocab(directory, tokens)


def make_preprocessor(directory, **sizes):
    return TASK.make_preprocessor(Sizes(**sizes), _write_vocab(directory))


# With windows of four words, these texts have 3, 1, 2 and 1 windows.
RECORDS = (
    ToyRecord("r0", "a bb a a bb ccc a a dddd", "dddd"),
    ToyRecord("r1", "bb a", "bb"),
    ToyRecord("r2", "a a a a eeeee", "eeeee"),
    ToyRecord("r3", "ccc", "ccc"),
)


def write_records(directory, split="dev"):
    """Stores `RECORDS` in two files."""
    encoder = example_maker.of_task(TASK, Sizes(), _write_vocab(directory))
    with tfrecords.ShardedWriter(directory, split, 2) as writer:
        for made in encoder.make_examples(RECORDS, split):
            for row in made.rows:
                writer.write(encoder.schema.serialize(row))
    return directory
