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

prints a table; `--output=FILE` keeps the rows as JSON lines, too. Held-out
records are about islands that no training record has. Chance is 1 in 6;
following only one of the two properties gives 1 in 3.
"""

import collections
import dataclasses
import json
import os
import tempfile
import time

import numpy as np
import tensorflow as tf
from absl import app
from absl import flags

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


@dataclasses.dataclass
class Row:
    """One line of the table.

    Attributes:
        question_kind: kind of the questions.
        variant: which model.
        accuracy: on held-out records.
        train_accuracy: over the last steps of the training.
        steps: steps trained.
        seconds: time for all steps but the first.
        seconds_per_step: their mean.
        solved_at: the step from which on the mean training accuracy of 25
            steps was at least 95 %; None for never.
    """

    question_kind: str
    variant: str
    accuracy: float
    train_accuracy: float
    steps: int
    seconds: float
    seconds_per_step: float
    solved_at: int | None


class TimeBudget(tf.keras.callbacks.Callback):
    """Ends a training after some time, or when nothing is left to learn.

    Attributes:
        steps: steps done.
        seconds: time since the first step's end.
        accuracy: mean training accuracy of the last steps.
        solved_at: see `Row`.
    """

    def __init__(self, seconds: float):
        """Sets the budget.

        Args:
            seconds: time from the end of the first step, which includes the
                compilation, on.
        """
        super().__init__()
        self.budget = seconds
        self.steps = 0
        self.seconds = 0.0
        self.solved_at = None
        self._start = None
        self._losses = collections.deque(maxlen=_WINDOW)
        self._accuracies = collections.deque(maxlen=_WINDOW)

    @property
    def accuracy(self):
        """Mean training accuracy of the last steps."""
        return float(np.mean(self._accuracies))

    def on_train_batch_end(self, batch, logs=None):
        """Counts the step, and stops if it was the last."""
        self.steps += 1
        now = time.perf_counter()
        self._start = self._start or now
        self.seconds = now - self._start
        self._losses.append(float(logs["loss"]))
        self._accuracies.append(float(logs["accuracy"]))
        # So that the next logs are of one step, not means of all so far.
        self.model.reset_metrics()
        full = len(self._losses) == _WINDOW
        if full and self.accuracy >= 0.95:
            self.solved_at = self.solved_at or self.steps
        if self.steps % _WINDOW == 0:
            print(
                f"    step {self.steps:5d}  loss {np.mean(self._losses):.3f}  "
                f"accuracy {self.accuracy:6.1%}  {self.seconds:4.0f} s",
                flush=True,
            )
        solved = full and np.mean(self._losses) < _LOSS_OF_THE_SOLVED
        if solved or self.seconds >= self.budget:
            self.model.stop_training = True


def make_data(
    question_kind: str, num_train: int, num_heldout: int, seed: int
) -> tuple[dict[str, tuple[dict[str, np.ndarray], np.ndarray]], int]:
    """Makes a corpus and its features.

    Args:
        question_kind: one of `corpus.QUESTION_KINDS`.
        num_train: number of training records.
        num_heldout: number of held-out records.
        seed: of the corpus.

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
    """Makes a compiled model of a variant.

    Args:
        variant: a key of `VARIANTS`.
        vocab_size: size of the vocabulary.
        num_layers: number of layers.
        learning_rate: highest learning rate.

    Returns:
        The model, from features to `logits`.
    """
    options = dict(VARIANTS[variant])
    sizes = {k: v for k, v in demo.ENCODER.items() if k != "preset"}
    sizes["num_hidden_layers"] = num_layers
    if "use_hard_g2l_mask" in options:
        sizes["use_hard_g2l_mask"] = options.pop("use_hard_g2l_mask")
    config = EtcConfig.from_dict(
        {
            **EtcConfig.from_preset(demo.ENCODER["preset"]).to_dict(),
            **sizes,
            "vocab_size": vocab_size,
        }
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
    question_kind: str,
    variant: str,
    data: dict[str, tuple[dict[str, np.ndarray], np.ndarray]],
    vocab_size: int,
    seconds: float,
    num_layers: int = 4,
    batch_size: int = 16,
    learning_rate: float = 1e-3,
    seed: int = 1,
) -> Row:
    """Trains a variant for some time and measures it.

    Args:
        question_kind: kind of the questions, for the row.
        variant: a key of `VARIANTS`.
        data: as from `make_data`.
        vocab_size: as from `make_data`.
        seconds: time for the training.
        num_layers: number of layers.
        batch_size: records a step.
        learning_rate: highest learning rate.
        seed: of weights and order.

    Returns:
        The row of the table.
    """
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
    return Row(
        question_kind=question_kind,
        variant=variant,
        accuracy=float(np.mean(np.argmax(logits, axis=-1) == labels)),
        train_accuracy=budget.accuracy,
        steps=budget.steps,
        seconds=budget.seconds,
        seconds_per_step=budget.seconds / max(budget.steps - 1, 1),
        solved_at=budget.solved_at,
    )


def format_table(rows: list[Row]) -> str:
    """The rows as text.

    Args:
        rows: the rows.

    Returns:
        The table, a line each.
    """
    lines = [
        f"{'questions':10}{'model':14}{'held-out':>9}{'train':>8}"
        f"{'steps':>7}{'seconds':>9}{'s/step':>8}{'solved at':>11}"
    ]
    for row in rows:
        lines.append(
            f"{row.question_kind:10}{row.variant:14}{row.accuracy:9.1%}"
            f"{row.train_accuracy:8.1%}{row.steps:7d}{row.seconds:9.1f}"
            f"{row.seconds_per_step:8.3f}{row.solved_at or '-':>11}"
        )
    return "\n".join(lines)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the program.

    Args:
        flag_values: where to define them.
    """
    flags.DEFINE_list(
        "question_kinds",
        list(corpus.QUESTION_KINDS),
        "Kinds of questions.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "variants", list(VARIANTS), "Models to train.", flag_values=flag_values
    )
    flags.DEFINE_float(
        "seconds",
        120.0,
        "Time for each training, from its second step on.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "num_train", 4000, "Training records.", flag_values=flag_values
    )
    flags.DEFINE_integer(
        "num_heldout", 400, "Held-out records.", flag_values=flag_values
    )
    flags.DEFINE_integer(
        "num_layers",
        4,
        "Layers. What a question asks for needs four to arrive.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "batch_size", 16, "Records a step.", flag_values=flag_values
    )
    flags.DEFINE_float(
        "learning_rate",
        1e-3,
        "Of Adam, after a warm-up of 20 steps.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "seed", 1, "Of the corpus and the training.", flag_values=flag_values
    )
    flags.DEFINE_string(
        "output",
        None,
        "File for the rows of the table, as JSON lines.",
        flag_values=flag_values,
    )


def run(values: flags.FlagValues) -> None:
    """Trains everything and prints the table.

    Args:
        values: the parsed flags.

    Raises:
        app.UsageError: a flag names what is not there.
    """
    program.check_choices(
        values,
        {"question_kinds": corpus.QUESTION_KINDS, "variants": VARIANTS},
    )
    if values.output:
        # Starts an empty file, or fails before the training.
        with open(values.output, "w", encoding="utf-8"):
            pass
    rows = []
    for kind in values.question_kinds:
        data, vocab_size = make_data(
            kind, values.num_train, values.num_heldout, values.seed
        )
        for variant in values.variants:
            print(f"{kind} questions, {variant}:", flush=True)
            row = train(
                kind,
                variant,
                data,
                vocab_size,
                values.seconds,
                num_layers=values.num_layers,
                batch_size=values.batch_size,
                learning_rate=values.learning_rate,
                seed=values.seed,
            )
            print(f"    held-out accuracy {row.accuracy:.1%}", flush=True)
            rows.append(row)
            if values.output:
                with open(values.output, "a", encoding="utf-8") as file:
                    file.write(json.dumps(dataclasses.asdict(row)) + "\n")
    print(f"\nChance is {corpus.CHANCE:.1%}.\n{format_table(rows)}")
    accuracy = {(row.question_kind, row.variant): row.accuracy for row in rows}
    linked = accuracy.get(("fixed", "full"))
    unlinked = accuracy.get(("fixed", "no links"))
    if linked is not None and unlinked is not None:
        print(
            "Candidate links are worth "
            f"{100 * (linked - unlinked):+.1f} points on the demo's questions."
        )


def main(argv):
    """Runs the program."""
    program.check_no_arguments(argv)
    run(flags.FLAGS)


if __name__ == "__main__":
    define_flags(flags.FLAGS)
    app.run(main)
