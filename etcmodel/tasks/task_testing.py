"""Helpers shared by the tests of the tasks."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import tokenizers
from etcmodel.tasks import export_lib
from etcmodel.tasks.commands import cli


def run_cli(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and error output of a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(list(arguments))
    return code, out.getvalue(), err.getvalue()


class EndToEndTestCase(tf.test.TestCase):
    """From the official file to a SavedModel: real records, learned by heart.

    Attributes:
        root: directory of everything.
        input: the data file.
        records: directory of the TFRecords.
        model_dir: directory of the run.
        saved_model: directory of the SavedModel.
    """

    @classmethod
    def setUpClass(cls):
        """Makes a directory."""
        super().setUpClass()
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.records = cls.path("records")
        cls.model_dir = cls.path("run")
        cls.saved_model = cls.path("saved_model")

    @classmethod
    def path(cls, *names: str) -> str:
        """A path in the directory."""
        return os.path.join(cls.root, *names)

    @staticmethod
    def run_command(*arguments: str) -> str:
        """What a command prints; it must succeed."""
        code, out, err = run_cli(*arguments)
        if code:
            raise AssertionError(err)
        return out

    @classmethod
    def make_saved_model(
        cls,
        task: str,
        features: Sequence[str],
        overrides: Mapping[str, object],
        vocab_file: str,
        learning_rate: float,
        steps: int,
        mode: str = "train",
    ) -> str:
        """Preprocesses `input`, trains and exports.

        The model is large enough to learn a few records by heart.

        Args:
            task: its name.
            features: flags of `preprocess` that are the task's own.
            overrides: parameters of the experiment.
            vocab_file: the vocabulary.
            learning_rate: the highest one.
            steps: how many steps to train.
            mode: of `train`.

        Returns:
            What `train` prints.
        """
        cls.run_command(
            "preprocess",
            f"--task={task}",
            f"--input={cls.input}",
            f"--vocab_file={vocab_file}",
            f"--output_dir={cls.records}",
            "--num_shards=2",
            *features,
        )
        encoder = "task.model.encoder"
        schedule = "trainer.optimizer_config.learning_rate.polynomial"
        overrides = {
            "task.train_data.input_path": cls.records,
            "task.validation_data.input_path": cls.records,
            f"{encoder}.preset": "tiny",
            f"{encoder}.hidden_size": 64,
            f"{encoder}.num_attention_heads": 4,
            f"{encoder}.hidden_dropout_prob": 0.0,
            f"{encoder}.attention_probs_dropout_prob": 0.0,
            "trainer.train_steps": steps,
            "trainer.steps_per_loop": steps // 2,
            "trainer.summary_interval": steps // 2,
            "trainer.checkpoint_interval": steps // 2,
            "trainer.validation_interval": steps,
            f"{schedule}.initial_learning_rate": learning_rate,
            **overrides,
        }
        overrides = ",".join(f"{key}={x}" for key, x in overrides.items())
        output = cls.run_command(
            "train",
            f"--experiment=etc/{task}",
            f"--mode={mode}",
            f"--model_dir={cls.model_dir}",
            f"--params_override={overrides}",
        )
        cls.run_command(
            "export",
            f"--model_dir={cls.model_dir}",
            f"--output_dir={cls.saved_model}",
        )
        return output

    def evaluate(self) -> dict:
        """The metrics of the last checkpoint."""
        output = self.path("metrics.json")
        self.run_command(
            "evaluate", f"--model_dir={self.model_dir}", f"--output={output}"
        )
        with open(output, encoding="utf-8") as stream:
            return json.load(stream)

    def predict(self, path: str, *arguments: str) -> tuple[str, Any]:
        """What the SavedModel makes of a data file.

        Args:
            path: the data file.
            *arguments: further flags of `predict`.

        Returns:
            What the command prints, and what it writes.
        """
        output = self.path("predictions.json")
        printed = self.run_command(
            "predict",
            f"--saved_model={self.saved_model}",
            f"--input={path}",
            f"--output={output}",
            *arguments,
        )
        with open(output, encoding="utf-8") as stream:
            return printed, json.load(stream)

    def read_stats(self) -> dict:
        """What `preprocess` counted."""
        path = os.path.join(self.records, "stats.json")
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)


def write_test_vocab(directory: str, words: str) -> str:
    """Writes a small WordPiece vocabulary.

    Args:
        directory: where to write it.
        words: its words, separated by spaces.

    Returns:
        Path of the file.
    """
    path = os.path.join(directory, "vocab.txt")
    tokens = [*tokenizers.WORDPIECE_RESERVED_TOKENS, *words.split()]
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(f"{token}\n" for token in dict.fromkeys(tokens))
    return path


_CITIES = ["paris", "rome", "oslo", "bonn"]


def write_small_wikihop(directory: str, num_records: int) -> tuple[str, str]:
    """Writes a WikiHop file of tiny records, and a vocabulary for it.

    The answer is the one candidate that the documents mention.

    Args:
        directory: where to write them.
        num_records: how many records.

    Returns:
        Paths of the data file and of the vocabulary.
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
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(records, stream)
    words = " ".join([*_CITIES, "city jan is here ."])
    return path, write_test_vocab(directory, words)


def write_small_hotpotqa(directory: str, num_records: int) -> tuple[str, str]:
    """Writes a HotpotQA file of tiny records, and a vocabulary for it.

    The answer is the city that the second sentence about Jan names, or, as the
    question tells, "yes" or "no". That sentence is the supporting fact.

    Args:
        directory: where to write them.
        num_records: how many records.

    Returns:
        Paths of the data file and of the vocabulary.
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
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(records, stream)
    words = " ".join([*_CITIES, "where jan is not he in a city here . ?"])
    return path, write_test_vocab(directory, words)


def write_small_nq(directory: str, num_records: int) -> tuple[str, str]:
    """Writes a Natural Questions file of tiny pages, and a vocabulary for it.

    Of four pages, two tell the city where Jan lives, in the only paragraph that
    names him, one does not name him, and one answers yes or no. Some pages have
    several windows.

    Args:
        directory: where to write them.
        num_records: how many records.

    Returns:
        Paths of the data file and of the vocabulary.
    """
    records = []
    for i in range(num_records):
        city, kind = _CITIES[i % 3], i % 4
        answer = f"yes no {city}".split()[i // 4 % 2 if kind == 3 else 2]
        paragraphs = ["here is rain ."] * (1 + i % 3 + 2 * i % 5)
        long, short = (-1, -1), []
        if kind != 2:
            paragraphs.insert(i % 3, f"jan lives in {answer} .")
            start = 6 * (i % 3)  # With two tags for each paragraph.
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


def write_small_records(
    directory: str, num_records: int, task: str = "wikihop"
) -> str:
    """Preprocesses tiny records with the program itself.

    Args:
        directory: where to write them.
        num_records: how many records.
        task: "wikihop", "hotpotqa" or "nq".

    Returns:
        Directory of the TFRecords, of long length 32 and global length 16.
    """
    write = {
        "wikihop": write_small_wikihop,
        "hotpotqa": write_small_hotpotqa,
        "nq": write_small_nq,
    }[task]
    more = ["--stride=8", "--question_length=6"] if task == "nq" else []
    path, vocab_file = write(directory, num_records)
    output = os.path.join(directory, "records")
    code = cli.main(
        [
            "preprocess",
            f"--task={task}",
            f"--input={path}",
            f"--vocab_file={vocab_file}",
            f"--output_dir={output}",
            "--long_length=32",
            "--global_length=16",
            "--num_shards=2",
            "--overwrite",
            *more,
        ]
    )
    assert code == 0
    return output


def write_small_saved_model(directory: str) -> str:
    """Exports a SavedModel that answers with the first candidate.

    Args:
        directory: where to write it.

    Returns:
        Its directory. Its only signature is `serving_default` of WikiHop; the
        first candidate has the probability 1.
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
            [], [], {export_lib.SERVING_DEFAULT: (first_candidate, specs)}
        ),
        output,
        model_name="wikihop",
        metadata={"task": "wikihop"},
        warmup_inputs={export_lib.SERVING_DEFAULT: request},
        overwrite=True,
    )
    return output


# Runs in a process of its own: what a program without this package sees.
_PROGRAM = """
import json, sys
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

path, request = sys.argv[1], json.loads(sys.argv[2])
from tensorflow.core.protobuf import saved_model_pb2
with open(path + "/saved_model.pb", "rb") as stream:
    saved_model = saved_model_pb2.SavedModel.FromString(stream.read())
graph = saved_model.meta_graphs[0].graph_def
functions = graph.library.function
nodes = list(graph.node) + [n for f in functions for n in f.node_def]
ops = {node.op for node in nodes} - {f.signature.name for f in functions}
other = sorted(op for op in ops if op_def_registry.get(op) is None)

import tensorflow_text
unknown = sorted(op for op in ops if op_def_registry.get(op) is None)

signature = tf.saved_model.load(path).signatures["serving_default"]
outputs = signature(**{k: tf.constant(v) for k, v in request.items()})
result = {
    "python": {k: v.numpy().tolist() for k, v in outputs.items()},
    "ops": sorted(ops), "other": other, "unknown": unknown,
}
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    meta = tf.compat.v1.saved_model.loader.load(session, ["serve"], path)
    signature = meta.signature_def["serving_default"]
    result["session"] = {
        k: v.tolist() for k, v in session.run(
            {k: v.name for k, v in signature.outputs.items()},
            {signature.inputs[k].name: v for k, v in request.items()},
        ).items()
    }
assert not any(name.startswith("etcmodel") for name in sys.modules)
json.dump(result, sys.stdout, default=lambda text: text.decode())
"""


def run_without_package(
    saved_model: str, request: Mapping[str, Sequence]
) -> dict:
    """Answers, and operations, of a SavedModel in a process of its own.

    Args:
        saved_model: its directory.
        request: inputs of `serving_default` as lists.

    Returns:
        A dict with the outputs as `python` (`tf.saved_model.load`) and as
        `session` (the loader of TensorFlow Serving); and the operations as
        `ops` (all), `other` (not TensorFlow's own) and `unknown` (not of
        tensorflow-text either).
    """
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                _PROGRAM,
                saved_model,
                json.dumps(request),
            ],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise AssertionError(done.stderr[-3000:])
    return json.loads(done.stdout)
