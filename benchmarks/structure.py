r"""What is structure worth? Table 3 of the ETC paper, in small.

Trains the same small model from random weights, with and without

*   candidate links: the label that ties a candidate to its mentions,
*   paragraph structure: local attention that stops at the document's end, a
    global token for each document, no order among documents (`flat` is the
    paper's ablation, which has no candidate links either),
*   the hard g2l mask: a sentence's global token sees its own sentence only,

on generated questions of three kinds (see `etcmodel/demo/corpus.py`): those of
the demo, those whose two properties change with the question, and those where
a person has to be followed from one document to the next. Every training has
the same time, and ends earlier when there is nothing left to learn.

    python -m benchmarks.structure --seconds=120

Held-out records are about islands that no training record has. Chance is 1 in
6; following only one of the two properties gives 1 in 3.
"""

import collections
import os
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks import program
from etcmodel.demo import corpus
from etcmodel.demo import demo
from etcmodel.demo import vocab
from etcmodel.models import EtcConfig
from etcmodel.tasks.wikihop.task import TASK

# name -> options of WikiHop's model, and the hard g2l mask.
VARIANTS = {
    "full": {},
    "no hard g2l": {"use_hard_g2l_mask": False},
    "no links": {"use_links": False},
    "flat": {"flat_sequence": True},
}

# Long and global length that hold every record.
_LENGTHS = {
    "fixed": (demo.LONG_LENGTH, demo.GLOBAL_LENGTH),
    "asked": (demo.LONG_LENGTH, demo.GLOBAL_LENGTH),
    "bridge": (351, 48),
}

# A training has learned all there is when the mean loss of this many steps is
# below this.
_WINDOW = 25
_LOSS_OF_THE_SOLVED = 0.02


class TimeBudget(tf.keras.callbacks.Callback):
    """Ends a training after some time, or when nothing is left to learn.

    Attributes:
        accuracy: mean training accuracy of the last 25 steps.
        solved_at: the first step at which that was 95 %; None for never.

    Args:
        seconds: time from the end of the first step, which includes the
            compilation, on.
    """

    def __init__(self, seconds: float):
        super().__init__()
        self.budget = seconds
        self.steps = 0
        self.seconds = self.accuracy = 0.0
        self.solved_at = None
        self._start = None
        self._logs = collections.deque(maxlen=_WINDOW)

    def on_train_batch_end(self, batch, logs=None):
        """Counts the step, and stops if it was the last."""
        self.steps += 1
        now = time.perf_counter()
        self._start = self._start or now
        self.seconds = now - self._start
        self._logs.append((logs["loss"], logs["accuracy"]))
        # So that the next logs are of one step, not means of all so far.
        self.model.reset_metrics()
        loss, self.accuracy = map(float, np.mean(self._logs, axis=0))
        full = len(self._logs) == _WINDOW
        if full and self.accuracy >= 0.95:
            self.solved_at = self.solved_at or self.steps
        solved = full and loss < _LOSS_OF_THE_SOLVED
        if solved or self.seconds >= self.budget:
            self.model.stop_training = True


def make_data(
    question_kind: str, num_train: int, num_heldout: int, seed: int
) -> tuple[dict[str, tuple[dict[str, np.ndarray], np.ndarray]], int]:
    """Makes a corpus and its features.

    Returns:
        Split -> pair of the features, `<int32>[records, long]` and
        `<int32>[records, global]`, and the labels `<int32>[records]`; and the
        size of the vocabulary.
    """
    records = {
        split: corpus.make_records(number, question_kind, split, seed)
        for split, number in (("train", num_train), ("heldout", num_heldout))
    }
    texts = [
        text
        for record in records["train"][:1000]
        for text in (*record["supports"], record["query"])
    ]
    long_length, global_length = _LENGTHS[question_kind]
    config = TASK.make_preprocessing_config(
        {"long_length": long_length, "global_length": global_length}
    )
    with tempfile.TemporaryDirectory() as directory:
        vocab_file = os.path.join(directory, "vocab.txt")
        vocab_size = vocab.build_vocab(texts, vocab_file)
        builder = TASK.make_preprocessor(config, vocab_file)
    build = tf.function(lambda *args: builder(*args).layout.features)
    data = {}
    for split, split_records in records.items():
        batches = []
        for start in range(0, len(split_records), 100):
            batch = split_records[start : start + 100]
            built = build(
                tf.constant([r["query"] for r in batch]),
                tf.constant([r["candidates"] for r in batch]),
                tf.constant([r["supports"] for r in batch]),
            )
            batches.append({k: v.numpy() for k, v in built.items()})
        labels = [r["candidates"].index(r["answer"]) for r in split_records]
        data[split] = (
            {k: np.concatenate([b[k] for b in batches]) for k in batches[0]},
            np.array(labels, np.int32),
        )
    return data, vocab_size


def make_model(
    variant: str, vocab_size: int, num_layers: int, learning_rate: float
) -> tf.keras.Model:
    """Makes a compiled model of a variant, from features to `logits`."""
    options = dict(VARIANTS[variant])
    masked = options.pop("use_hard_g2l_mask", None)
    sizes = {} if masked is None else {"use_hard_g2l_mask": masked}
    sizes = {**demo.ENCODER, "num_hidden_layers": num_layers, **sizes}
    config = EtcConfig.from_preset(
        sizes.pop("preset"), vocab_size=vocab_size, **sizes
    )
    model = TASK.make_model(TASK.model_options(**options)).build(config)
    model = tf.keras.Model(model.input, model.output["logits"])
    warmup = tf.keras.optimizers.schedules.PiecewiseConstantDecay(
        [5, 10, 15, 20], [learning_rate * k / 5 for k in range(1, 6)]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(warmup, global_clipnorm=1.0),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[
            tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
        ],
    )
    return model


def train(
    variant: str,
    data: dict[str, tuple[dict[str, np.ndarray], np.ndarray]],
    vocab_size: int,
    seconds: float,
    num_layers: int = 4,
    batch_size: int = 16,
    learning_rate: float = 1e-3,
    seed: int = 1,
) -> program.Line:
    """Trains a variant for some time; returns fields of the row."""
    tf.keras.utils.set_random_seed(seed)
    model = make_model(variant, vocab_size, num_layers, learning_rate)
    budget = TimeBudget(seconds)
    features, labels = data["train"]
    dataset = (
        tf.data.Dataset.from_tensor_slices((features, labels))
        .shuffle(len(labels), seed=seed)
        .repeat()
        .batch(batch_size, drop_remainder=True)
        .prefetch(2)
    )
    # The budget ends it.
    model.fit(dataset, steps_per_epoch=1_000_000, verbose=0, callbacks=[budget])
    features, labels = data["heldout"]
    logits = model.predict(features, batch_size=64, verbose=0)
    return {
        "accuracy": float(np.mean(np.argmax(logits, axis=-1) == labels)),
        "train_accuracy": budget.accuracy,
        "steps": budget.steps,
        "seconds": budget.seconds,
        "seconds_per_step": budget.seconds / max(budget.steps - 1, 1),
        "solved_at": budget.solved_at,
    }


def _measure(values) -> Iterator[program.Line]:
    accuracy = {}
    options = ("num_layers", "batch_size", "learning_rate", "seed")
    for kind in values.question_kinds:
        data, vocab_size = make_data(
            kind, values.num_train, values.num_heldout, values.seed
        )
        for variant in values.variants:
            print(f"{kind} questions, {variant}:", flush=True)
            row = train(
                *(variant, data, vocab_size, values.seconds),
                **{name: values[name].value for name in options},
            )
            accuracy[kind, variant] = row["accuracy"]
            yield {"question_kind": kind, "variant": variant, **row}
    print(f"\nChance is {corpus.CHANCE:.1%}.")
    linked = accuracy.get(("fixed", "full"))
    unlinked = accuracy.get(("fixed", "no links"))
    if linked is not None and unlinked is not None:
        print(
            "Candidate links are worth "
            f"{100 * (linked - unlinked):+.1f} points on the demo's questions."
        )


PROGRAM = program.Program(
    "structure",
    {
        "question_kinds": (
            [*corpus.QUESTION_KINDS],
            "Kinds of questions.",
            corpus.QUESTION_KINDS,
        ),
        "variants": ([*VARIANTS], "Models to train.", VARIANTS),
        "seconds": (
            120.0,
            "Time for each training, from its second step on.",
        ),
        "num_train": (4000, "Training records."),
        "num_heldout": (400, "Held-out records."),
        "num_layers": (
            4,
            "Layers. What a question asks for needs four to arrive.",
        ),
        "batch_size": (16, "Records a step."),
        "learning_rate": (1e-3, "Of Adam, after a warm-up of 20 steps."),
        "seed": (1, "Of the corpus and the training."),
    },
    program.read_columns(
        "question_kind variant accuracy:.1% train_accuracy:.1% steps:d "
        "seconds:.1f seconds_per_step:.3f solved_at:d"
    ),
    _measure,
)

if __name__ == "__main__":
    program.main(PROGRAM)
