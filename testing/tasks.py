"""Helpers shared by the tests of the tasks."""

import contextlib
import copy
import functools
import io
import json
import operator
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any
from typing import NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.cli import command_line
from etcmodel.errors import RecordError
from etcmodel.feature_utils.text import tokenizer_settings
from etcmodel.feature_utils.text import tokenizers
from etcmodel.pipeline import example_maker
from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.example_maker import ExampleMaker
from etcmodel.serving import saved_model as export_lib
from etcmodel.serving import signatures
from etcmodel.tasks import registry
from testing import helpers
from testing import openkp
from testing import own_documents
from testing import pretraining
from testing import reading


def run_cli(*arguments: str) -> tuple[int, str, str]:
    """Runs a command in this process; returns exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command_line.main(list(arguments))
    return code, out.getvalue(), err.getvalue()


def without_phases(result: tuple[int, str, str]) -> tuple[int, str, str]:
    """Removes the lines of stdout in which a command says what it is doing."""
    code, out, err = result
    return (
        code,
        re.sub("(?m)^(Building|Loading|Reading|Writing) .*\n", "", out),
        err,
    )


class CommandTestCase(tf.test.TestCase, parameterized.TestCase):
    """Base class of tests of commands; each test has its own `directory`."""

    def setUp(self):
        super().setUp()
        self.directory = tempfile.mkdtemp(dir=self.get_temp_dir())

    def path(self, *names: str) -> str:
        return os.path.join(self.directory, *names)

    def assert_succeeds(self, result: tuple[int, str, str]) -> str:
        """Checks that a command succeeded; returns its output."""
        code, out, err = result
        self.assertEqual((0, ""), (code, err))
        return out

    def assert_fails(self, result: tuple[int, str, str], *messages: str):
        """Checks that a command failed with an error that matches patterns."""
        code, out, err = result
        self.assertEqual((1, ""), (code, out))
        self.assertStartsWith(err, "Error: ")
        self.assertNotIn("Traceback", err)
        for message in messages:
            self.assertRegex(err, message)


def read_json(path: str):
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def write_json(path: str, value) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(value, stream)


# As a new value in `changed`, this removes a field.
REMOVE = object()


def changed(record, place: str, value):
    """Copies a JSON record with a new value at a place such as `a[0].b`."""
    record = copy.deepcopy(record)
    *keys, last = [
        int(key) if key.isdigit() else key for key in re.findall(r"\w+", place)
    ]
    parent = functools.reduce(operator.getitem, keys, record)
    parent[last] = value
    if value is REMOVE:
        del parent[last]
    return record


@contextlib.contextmanager
def without_tracing():
    """Runs functions eagerly: for few records, tracing takes longer."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def shared_writers():
    """Returns a patch that lets runs of `preprocess` share traced functions.

    While the patch is active, runs that have the same task, sizes and
    vocabulary use one writer.
    """
    make, writers = example_maker.of_task, {}

    def of_task(spec, config, vocab_file, settings=None):
        key = (
            *(spec.name, config, tfrecords.fingerprint(vocab_file), settings),
            tokenizer_settings.read_settings(os.path.dirname(vocab_file)),
        )
        if key not in writers:
            writers[key] = make(spec, config, vocab_file, settings)
        return writers[key]

    return mock.patch.object(example_maker, "of_task", of_task)


class EncodedRecord(NamedTuple):
    """The serialized examples of a record, and its counts."""

    examples: list[bytes]
    counts: Mapping[str, int]


def encode_records(
    writer: ExampleMaker, records: Sequence[Any], split: str
) -> list[EncodedRecord]:
    """Makes and serializes the examples of records, without packing."""
    return [
        EncodedRecord(
            [writer.schema.serialize(row) for row in made.rows], made.counts
        )
        for made in make_examples(writer, records, split)
    ]


def make_examples(
    writer: ExampleMaker, records: Sequence[Any], split: str
) -> list[Any]:
    """Makes the examples of records; raises an error at the first failure."""
    made = writer.make_examples(records, split)
    for error in made:
        if isinstance(error, RecordError):
            raise error
    return made


def preprocess_few(
    task: str, path: str, vocab_file: str, output: str, sizes: Sequence[str]
) -> None:
    """Runs `preprocess` on a few records, for the split "dev".

    `sizes` are the task's own flags. If a task needs its training records, too,
    they are the same few records.
    """

    def preprocess(output, *more):
        code, _, err = run_cli(
            "preprocess",
            f"--task={task}",
            f"--input={path}",
            f"--vocab_file={vocab_file}",
            f"--output_dir={output}",
            "--num_shards=2",
            "--overwrite",
            *sizes,
            *more,
        )
        assert code == 0, err

    with without_tracing(), tempfile.TemporaryDirectory() as folder:
        more = []
        if registry.get(task).complete:
            preprocess(folder)
            more = [f"--like={folder}"]
        preprocess(output, "--split=dev", *more)


# Tasks that write predictions as JSON lines.
_JSON_LINES = ("classify", "openkp", "read_twice_narrativeqa", "select")


class EndToEndTestCase(tf.test.TestCase):
    """Trains a model that memorizes records, and exports it.

    A subclass sets the task and its options. The commands run once per class.

    Attributes:
        task: name of the task.
        experiment: name of the experiment; by default `etc/` and the task.
        features: the task's own flags of `preprocess`.
        overrides: parameters of the experiment, in addition to those of a small
            model with one layer.
        root: directory of all files.
        input: path of the data file.
        train_output: output of `train`.
    """

    task = ""
    experiment = ""
    features = ()
    overrides = MappingProxyType({})
    learning_rate = 0.01
    steps = 60
    mode = "train"
    exports = True

    @classmethod
    def write_data(cls) -> tuple[str, str]:
        """Writes the data file and the vocabulary; returns their paths."""
        raise NotImplementedError

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.records = cls.path("records")
        cls.model_dir = cls.path("run")
        cls.saved_model = cls.path("saved_model")
        cls.input, cls.vocab_file = cls.write_data()
        preprocess_few(
            cls.task, cls.input, cls.vocab_file, cls.records, cls.features
        )
        tf.keras.utils.set_random_seed(1)
        cls.train_output = cls.run_command("train", *cls.train_flags())
        if cls.exports:
            cls.run_command(
                "export",
                f"--model_dir={cls.model_dir}",
                f"--output_dir={cls.saved_model}",
            )

    @classmethod
    def train_flags(cls, overrides: Mapping = MappingProxyType({})) -> list:
        """Returns the flags of `train`; `overrides` are further parameters."""
        encoder = "task.model.encoder"
        rate = "trainer.optimizer_config.learning_rate.polynomial"
        intervals = ("steps_per_loop", "summary_interval")
        intervals += ("checkpoint_interval", "validation_interval")
        overrides = {
            "task.train_data.input_path": cls.records,
            "task.train_data.seed": 1,
            "task.validation_data.input_path": cls.records,
            f"{encoder}.preset": "tiny",
            f"{encoder}.num_hidden_layers": 1,
            f"{encoder}.initializer_range": 0.1,
            f"{encoder}.hidden_dropout_prob": 0.0,
            f"{encoder}.attention_probs_dropout_prob": 0.0,
            "trainer.train_steps": cls.steps,
            **{f"trainer.{name}": cls.steps for name in intervals},
            f"{rate}.initial_learning_rate": cls.learning_rate,
            **cls.overrides,
            **overrides,
        }
        given = ",".join(f"{name}={x}" for name, x in overrides.items())
        return [
            f"--experiment={cls.experiment or f'etc/{cls.task}'}",
            f"--mode={cls.mode}",
            f"--model_dir={cls.model_dir}",
            f"--params_override={given}",
        ]

    @classmethod
    def path(cls, *names: str) -> str:
        return os.path.join(cls.root, *names)

    @staticmethod
    def run_command(*arguments: str) -> str:
        """Runs a command; returns its output. Raises an error if it fails."""
        code, out, err = run_cli(*arguments)
        if code:
            raise AssertionError(err)
        return out

    @classmethod
    @functools.cache
    def evaluate(cls, *arguments: str) -> dict:
        """Runs `evaluate` with further flags; returns the metrics."""
        output = cls.path("metrics.json")
        cls.run_command(
            "evaluate",
            f"--model_dir={cls.model_dir}",
            f"--output={output}",
            *arguments,
        )
        return read_json(output)

    def predict(self, path: str, *arguments: str) -> tuple[str, Any]:
        """Runs `predict`; returns its output and the content of its file."""
        output = self.path("predictions.json")
        printed = self.run_command(
            "predict",
            f"--saved_model={self.saved_model}",
            f"--input={path}",
            "--overwrite",
            f"--output={output}",
            *arguments,
        )
        with open(output, encoding="utf-8") as stream:
            lines = stream.readlines()
        if self.task in _JSON_LINES:
            return printed, [json.loads(line) for line in lines]
        return printed, json.loads("".join(lines))

    def read_stats(self) -> dict:
        return read_json(os.path.join(self.records, "stats.json"))


def write_test_vocab(directory: str, words: str) -> str:
    """Writes a small WordPiece vocabulary of words; returns its path."""
    tokens = [*tokenizers.WORDPIECE_RESERVED_TOKENS, *words.split()]
    return helpers.write_vocab(directory, tokens)


_CITIES = ["paris", "rome", "oslo", "bonn"]


def write_small_wikihop(directory: str, num_records: int) -> tuple[str, str]:
    """Writes a WikiHop file of tiny records, and a vocabulary for it.

    The answer is the only candidate that the documents mention. Like all
    writers in this module, returns the paths of the data file and of the
    vocabulary.
    """
    records = []
    for i in range(num_records):
        city = _CITIES[i % 4]
        records.append(
            {
                "id": f"small_{i}",
                "query": "city jan",
                "candidates": _CITIES,
                "supports": ["Jan is here.", f"Here is {city}. Jan is."],
                "answer": city,
            }
        )
    path = os.path.join(directory, "small.json")
    write_json(path, records)
    words = " ".join([*_CITIES, "city jan is here ."])
    return path, write_test_vocab(directory, words)


def write_small_hotpotqa(directory: str, num_records: int) -> tuple[str, str]:
    """Writes a HotpotQA file of tiny records, and a vocabulary for it.

    The answer is the city in the second sentence about Jan or, for some
    questions, "yes" or "no". That sentence is the supporting fact.
    """
    records = []
    for i in range(num_records):
        city, other = _CITIES[i % 4], _CITIES[(i + 1) % 4]
        question, answer = "Where is Jan?", city
        if i % 3 == 2:
            question, answer = (
                ("Is Jan in a city?", "yes")
                if i % 2
                else ("Is Jan not in a city?", "no")
            )
        context = [["Jan", ["Jan is here.", f" He is in {city}."]]]
        if i % 2:
            context.append([other, [f" Here is {other}."]])
        records.append(
            {
                "_id": f"small_{i}",
                "question": question,
                "context": context,
                "answer": answer,
                "supporting_facts": [["Jan", 1]],
            }
        )
    path = os.path.join(directory, "small.json")
    write_json(path, records)
    words = " ".join([*_CITIES, "where jan is not he in a city here . ?"])
    return path, write_test_vocab(directory, words)


def write_small_nq(directory: str, num_records: int) -> tuple[str, str]:
    """Writes a Natural Questions file of tiny pages, and a vocabulary for it.

    In each group of four pages, two name the city where Jan lives, in the only
    paragraph that mentions him; one does not mention him; and one answers yes
    or no. Some pages have several windows.
    """
    records = []
    for i in range(num_records):
        city, kind = _CITIES[i % 3], i % 4
        answer = f"yes no {city}".split()[i // 4 % 2 if kind == 3 else 2]
        paragraphs = ["here is rain ."] * (1 + i % 3 + 2 * i % 5)
        long, short = (-1, -1), []
        if kind != 2:
            paragraphs.insert(i % 3, f"jan lives in {answer} .")
            start = 6 * (i % 3)  # Two tags of each paragraph count as tokens.
            long = (start, start + 7)
            short = [] if kind == 3 else [(start + 4, start + 5)]
        words = " ".join(f"<P> {text} </P>" for text in paragraphs).split()
        spans = [start for start, word in enumerate(words) if word == "<P>"]
        spans = list(zip(spans, [*spans[1:], len(words)], strict=True))
        records.append(
            {
                "example_id": i,
                "question_text": "where is jan",
                "document_tokens": [
                    {"token": word, "html_token": word[0] == "<"}
                    for word in words
                ],
                "long_answer_candidates": [
                    {"start_token": start, "end_token": end, "top_level": True}
                    for start, end in spans
                ],
                "annotations": [
                    {
                        "long_answer": {
                            "start_token": long[0],
                            "end_token": long[1],
                        },
                        "short_answers": [
                            {"start_token": start, "end_token": end}
                            for start, end in short
                        ],
                        "yes_no_answer": (
                            answer.upper() if kind == 3 else "NONE"
                        ),
                    }
                ],
            }
        )
    path = os.path.join(directory, "small.jsonl")
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(record) + "\n" for record in records)
    words = "where is jan lives in here rain yes no . [unused102] [unused103]"
    return path, write_test_vocab(directory, " ".join([*_CITIES, words]))


# Task -> function that writes small records, and flags of `preprocess`.
_SIZES = ("--long_length=32", "--global_length=16")
SMALL_RECORDS = {
    "classify": (own_documents.write_small_labels, own_documents.SIZES),
    "select": (own_documents.write_small_selections, own_documents.SIZES),
    "answer": (own_documents.write_small_answers, own_documents.SIZES),
    "wikihop": (write_small_wikihop, _SIZES),
    "hotpotqa": (write_small_hotpotqa, _SIZES),
    "nq": (write_small_nq, (*_SIZES, "--stride=8", "--question_length=6")),
    "openkp": (
        openkp.write_small_openkp,
        ("--long_length=64", "--global_length=16"),
    ),
    # An example holds two texts and some padding.
    "pretrain": (
        pretraining.write_small_texts,
        ("--long_length=60", "--global_length=16"),
    ),
    "read_twice_hotpotqa": (write_small_hotpotqa, reading.SIZES),
    "read_twice_triviaqa": (
        reading.write_small_triviaqa,
        reading.SIZES,
    ),
    "read_twice_narrativeqa": (
        reading.write_small_narrativeqa,
        reading.SIZES,
    ),
    "read_twice_pretrain": (
        pretraining.write_small_documents,
        (
            f"--block_length={pretraining.SEGMENT_LENGTH}",
            f"--num_blocks_per_example={pretraining.BLOCKS}",
            "--max_num_annotations=2",
        ),
    ),
}


def write_small_records(
    directory: str, num_records: int, task: str = "wikihop", **options
) -> str:
    """Preprocesses tiny records with the `preprocess` command.

    Returns the directory of the TFRecords, with the split "dev";
    `SMALL_RECORDS` has their sizes.
    """
    write, sizes = SMALL_RECORDS[task]
    path, vocab_file = write(directory, num_records, **options)
    output = os.path.join(directory, "records")
    preprocess_few(task, path, vocab_file, output, sizes)
    return output


def write_small_saved_model(directory: str) -> str:
    """Exports a SavedModel that always answers with the first candidate.

    The model has only WikiHop's signature `serving_default`, and gives the
    first candidate the probability 1. Returns the SavedModel's directory.
    """

    def first_candidate(query, candidates, supports):
        del query, supports
        # [batch, candidates]
        probabilities = tf.one_hot(
            tf.zeros_like(candidates[:, 0], tf.int32), tf.shape(candidates)[1]
        )
        return {
            "answer": candidates[:, 0],
            "candidate_probabilities": probabilities,
        }

    specs = {
        "query": tf.TensorSpec([None], tf.string),
        "candidates": tf.TensorSpec([None, None], tf.string),
        "supports": tf.TensorSpec([None, None], tf.string),
    }
    request = {
        "query": np.array([b"q"], dtype=object),
        "candidates": np.array([[b"a", b"b"]], dtype=object),
        "supports": np.array([[b"s"]], dtype=object),
    }
    output = os.path.join(directory, "small_saved_model")
    export_lib.export_saved_model(
        export_lib.ServingModule(
            [], [], {signatures.SERVING_DEFAULT: (first_candidate, specs)}
        ),
        output,
        model_name="wikihop",
        metadata={"task": "wikihop", "options": {}},
        warmup_inputs={signatures.SERVING_DEFAULT: request},
        overwrite=True,
    )
    return output


def write_run(model_dir, note=None, params=None):
    """Writes the files that `train` writes, except checkpoints."""
    note = note or {"task": "wikihop", "experiment": "etc/wikihop"}
    write_json(os.path.join(model_dir, "etcmodel.json"), note)
    if params is not None:
        task = {"model": {}, **params.get("task", {})}
        params = {"trainer": {"validation_steps": -1}, **params, "task": task}
        # Every JSON file is a YAML file.
        write_json(os.path.join(model_dir, "params.yaml"), params)
