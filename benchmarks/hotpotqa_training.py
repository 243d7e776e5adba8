"""HotpotQA from few records: what `hotpotqa_small` trains, in stages."""

import json
import os
import random
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

import msgspec
from absl import flags

from benchmarks import training_runs
from etcmodel.datasets.hotpotqa import augmentation
from etcmodel.datasets.hotpotqa.records import FORMAT
from etcmodel.datasets.hotpotqa.records import HotpotQARecord

_GLOBAL_LENGTH = 192
# Of English words in WordPieces, less what is between paragraphs.
_CHARACTERS_PER_TOKEN = 3.7


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the training.

    Args:
        flag_values: where to define them.
    """
    for name, text in (
        ("dev", "Records to measure on."),
        ("vocab_file", "WordPiece vocabulary or SentencePiece model."),
        (
            "lift",
            "Directory of a BERT to begin with, whose vocabulary, width and "
            "number of layers are taken.",
        ),
        ("pretrain_text", "Further texts to pre-train on."),
        ("directory", "New directory for all runs, if they are to be kept."),
    ):
        flags.DEFINE_string(name, None, text, flag_values=flag_values)
    flags.DEFINE_multi_string(
        "train",
        None,
        "Training records; of a file that is given twice each record is "
        "learned from twice as often.",
        flag_values=flag_values,
    )
    for name, value, text in (
        ("steps", 400, "Training steps."),
        ("pretrain_steps", 0, "Steps of pre-training before."),
        ("pseudo_steps", 0, "Steps on pseudo-questions before."),
        ("batch_size", 8, "Records a step."),
        (
            "copies",
            0,
            "Copies of each training record, each with other of its paragraphs "
            "as long_length has room for; 0 for the records as they are.",
        ),
        ("pseudo_questions", 6, "Pseudo-questions of each training record."),
        ("seed", 1, "Of all that is random."),
        ("long_length", 2048, "Of the long input."),
        (
            "evaluated_length",
            0,
            "The same of the records to measure on; 0 for long_length.",
        ),
        ("hidden_size", 128, "Of the encoder."),
        ("layers", 2, "Of the encoder."),
    ):
        flags.DEFINE_integer(name, value, text, flag_values=flag_values)
    for command in ("lift", "train"):
        flags.DEFINE_multi_string(
            f"{command}_option",
            [],
            f"A further flag of {command}.",
            flag_values=flag_values,
        )
    for name, value, text in (
        ("learning_rate", 1e-3, "The highest."),
        ("first_learning_rate", 2e-4, "The same of what comes before."),
        ("fact_prior", 0.5, "See `HotpotQAModelOptions`."),
        ("fact_threshold", 0.5, "See `HotpotQAOptions`."),
    ):
        flags.DEFINE_float(name, value, text, flag_values=flag_values)


def make_records(
    records: Sequence[HotpotQARecord],
    number: int,
    make: Callable[[HotpotQARecord], HotpotQARecord | None],
    seed: int,
) -> list[HotpotQARecord]:
    """What is made of records, to learn from.

    Args:
        records: the records.
        number: how many are made of each.
        make: makes one; None if it cannot.
        seed: of the order.

    Returns:
        The new records, in random order, with ids of their own.
    """
    made = [make(record) for record in records for _ in range(number)]
    made = [record for record in made if record is not None]
    random.Random(seed).shuffle(made)
    return [
        msgspec.structs.replace(x, id=f"{i}-{x.id}") for i, x in enumerate(made)
    ]


class Training:
    """Trains a model in stages, each of which goes on with the one before.

    Args:
        values: the flags.
        directory: where everything is written.
    """

    def __init__(self, values: flags.FlagValues, directory: str):
        self._values = values
        self._directory = directory
        self._vocab_file = values.vocab_file
        self._records = [x for f in values.train for x in FORMAT.read(f)]
        self._rng = random.Random(values.seed)
        # The flags of `train` with which the next stage begins.
        self._init = []

    def run(self) -> dict[str, float]:
        """All stages that the flags ask for.

        Returns:
            The metrics of `evaluate`.
        """
        values = self._values
        if values.lift:
            self._lift()
        if values.pretrain_steps:
            self._pretrain()
        if values.pseudo_steps:
            records = make_records(
                self._records,
                values.pseudo_questions,
                lambda record: augmentation.make_pseudo_question(
                    self._shorten(
                        msgspec.structs.replace(record, supporting_facts=None)
                    ),
                    self._rng,
                ),
                values.seed,
            )
            rate = values.first_learning_rate
            self._learn("pseudo", records, values.pseudo_steps, rate)
        records = self._records
        if values.copies:
            records = make_records(
                records, values.copies, self._shorten, values.seed
            )
        self._learn("train", records, values.steps, values.learning_rate)
        return self._evaluate()

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _shorten(self, record: HotpotQARecord) -> HotpotQARecord:
        room = int(_CHARACTERS_PER_TOKEN * self._values.long_length)
        return augmentation.choose_paragraphs(record, room, self._rng)

    def _lift(self) -> None:
        training_runs.run_command(
            "lift",
            f"--from={self._values.lift}",
            f"--output_dir={self._path('lifted')}",
            "--local_radius=84",
            *self._values.lift_option,
        )
        self._vocab_file = self._path("lifted/vocab.txt")
        self._init = [f"--init_checkpoint={self._path('lifted')}"]

    def _pretrain(self) -> None:
        """Learns from the texts of the training records."""
        texts = {
            "".join(paragraph.sentences): paragraph.title
            for record in self._records
            for paragraph in record.context
        }
        file = self._path("texts.jsonl")
        with open(file, "w", encoding="utf-8") as stream:
            for text, title in texts.items():
                stream.write(json.dumps({"text": f"{title}\n\n{text}"}) + "\n")
        length = self._values.long_length
        self._preprocess(
            "pretrain",
            ",".join(filter(None, [file, self._values.pretrain_text])),
            "train",
            "texts",
            length,
            length // 9,
            # Paragraphs are short.
            "--min_sentences=3",
        )
        self._train(
            "texts",
            "etc/pretrain",
            {},
            self._values.pretrain_steps,
            self._values.first_learning_rate,
        )

    def _learn(
        self, name: str, records: Sequence, steps: int, rate: float
    ) -> None:
        """Learns to answer."""
        values = self._values
        file = self._path(f"{name}.json")
        with open(file, "wb") as stream:
            stream.write(msgspec.json.encode(records))
        self._preprocess("hotpotqa", file, "train", name, values.long_length)
        model = {"supporting_fact_prior": values.fact_prior}
        if not self._init:
            model["encoder"] = {
                "preset": "tiny",
                "hidden_size": values.hidden_size,
                "num_hidden_layers": values.layers,
                "num_attention_heads": 4,
                "intermediate_size": 4 * values.hidden_size,
                "local_radius": 32,
            }
        task = {
            "model": model,
            "supporting_fact_threshold": values.fact_threshold,
        }
        self._train(name, "etc/hotpotqa", task, steps, rate)

    def _preprocess(
        self, task, file, split, name, length, globals_=_GLOBAL_LENGTH, *options
    ) -> None:
        training_runs.run_command(
            "preprocess",
            f"--task={task}",
            f"--input={file}",
            f"--split={split}",
            f"--vocab_file={self._vocab_file}",
            f"--output_dir={self._path(name)}",
            f"--long_length={length}",
            f"--global_length={globals_}",
            "--num_shards=4",
            *options,
        )

    def _train(
        self, name: str, experiment: str, task: Mapping, steps: int, rate: float
    ) -> None:
        """Trains on what was preprocessed; the next stage begins with it."""
        size = {"global_batch_size": self._values.batch_size}
        data = {
            "train_data": {"input_path": self._path(name), **size},
            "validation_data": size,
        }
        run = self._path(f"{name}_run")
        training_runs.train(
            run,
            experiment,
            {**task, **data},
            training_runs.make_trainer(steps, rate, interval=50),
            [
                "--mode=train",
                f"--seed={self._values.seed}",
                *self._init,
                *self._values.train_option,
            ],
        )
        self._init = [f"--init_checkpoint={run}"]

    def _evaluate(self) -> dict[str, float]:
        length = self._values.evaluated_length or self._values.long_length
        self._preprocess("hotpotqa", self._values.dev, "dev", "dev", length)
        return training_runs.evaluate(
            self._path("train_run"),
            self._path("dev"),
            f"--params_override=task.model.long_length={length}",
        )
