"""Runs the demo, from a generated corpus to the answers of a SavedModel.

Users take the same steps with their own data. Commands of `python -m etcmodel`
are printed before they run.
"""

import contextlib
import dataclasses
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from collections.abc import Iterator

from etcmodel.demo import corpus
from etcmodel.demo.world import QUESTION
from etcmodel.errors import UserError
from etcmodel.pipeline.options import option

# Marks a directory that the demo made and may replace.
MARKER_FILE = "made_by_the_etcmodel_demo.json"
ASK_FILE = "ask.py"
_NUM_STEPS = 8
_BATCH_SIZE = 16

# Room for a whole record of the corpus: 22 blocks of 13 tokens.
LONG_LENGTH = 286
GLOBAL_LENGTH = 44
LENGTHS = {"long_length": LONG_LENGTH, "global_length": GLOBAL_LENGTH}
# Three layers suffice: one passes information from the words of a trade to the
# island's mention, one from the mention to the candidate, and one compares
# candidates. At a hidden size of 64, training takes far longer with BERT's
# initial standard deviation of 0.02.
ENCODER = {
    "preset": "base",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "local_radius": 12,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.1,
    "use_hard_g2l_mask": True,
}


@dataclasses.dataclass(kw_only=True)
class Options:
    """Options of the demo.

    Attributes:
        output_dir: directory for the corpus, the model and the logs. The files
            of an earlier demo are replaced.
        question: a JSON file with a question of your own for the exported
            model: {"query": ..., "candidates": [...], "supports": [...]}.
        num_train: number of training records.
        num_heldout: number of held-out records.
        train_steps: number of training steps.
        min_accuracy: the demo fails below this accuracy on held-out records.
        seed: seed of the corpus and of training.
    """

    output_dir: str = option("demo_output", path="demo")
    question: str | None = option(None, path="file")
    num_train: int = option(4000, is_flag=False)
    num_heldout: int = option(400, is_flag=False)
    train_steps: int = option(275, is_flag=False)
    min_accuracy: float = option(0.95, is_flag=False)
    seed: int = option(1, is_flag=False)


def train_config(options: Options) -> dict:
    """Returns the demo's overrides of the experiment `etc/wikihop`."""
    records = os.path.join(options.output_dir, "records")
    return {
        "task": {
            "model": {"encoder": ENCODER},
            "train_data": {
                "input_path": os.path.join(records, "train"),
                "global_batch_size": _BATCH_SIZE,
                "shuffle_buffer_size": 1000,
                "seed": options.seed,
            },
            "validation_data": {
                "input_path": os.path.join(records, "heldout"),
                "global_batch_size": _BATCH_SIZE,
            },
        },
        "trainer": {
            "train_steps": options.train_steps,
            "steps_per_loop": 25,
            "summary_interval": 25,
            "checkpoint_interval": options.train_steps,
            "optimizer_config": {
                # The first gradients are so small that BERT's epsilon of 1e-6
                # would keep the weights from changing.
                "optimizer": {
                    "adamw": {"epsilon": 1e-8, "weight_decay_rate": 0.0}
                },
                "learning_rate": {
                    "polynomial": {
                        "initial_learning_rate": 1e-3,
                        "end_learning_rate": 5e-4,
                        "decay_steps": options.train_steps,
                    }
                },
                "warmup": {"linear": {"warmup_steps": 20}},
            },
        },
    }


def main(options: Options, command: Callable[[list[str]], int]) -> None:
    """Runs the demo.

    `command` runs a command of `python -m etcmodel` and returns its exit code.

    Raises:
        UserError: a step failed, the output directory is not the demo's, or
            the accuracy is too low.
    """
    run = functools.partial(_run_command, command)
    question = _read_question(options.question)
    prepare_output_dir(options.output_dir)
    steps = _Steps()

    with steps.step("Write a corpus about a fictional world"):
        _write_corpus(options)
    with steps.step("Build a WordPiece vocabulary from the training texts"):
        vocab_file = _write_vocab(options)
    with steps.step("Preprocess the texts into the model's features"):
        for split in corpus.SPLITS:
            run(
                "preprocess",
                task="wikihop",
                input=_corpus_file(options, split),
                split="train" if split == "train" else "dev",
                vocab_file=vocab_file,
                output_dir=os.path.join(options.output_dir, "records", split),
                **LENGTHS,
                num_shards=4,
            )
    with steps.step(f"Train a small ETC for {options.train_steps} steps"):
        model_dir = _train(options, run)
    with steps.step("Draw the attention of one record"):
        picture = os.path.join(options.output_dir, "attention.png")
        run(
            "inspect",
            task="wikihop",
            input=_corpus_file(options, "heldout"),
            like=model_dir,
            output=picture,
        )
    with steps.step("Evaluate on held-out records with new island names"):
        metrics_file = os.path.join(options.output_dir, "evaluation.json")
        run("evaluate", model_dir=model_dir, output=metrics_file)
        accuracy = _read_json(metrics_file)["accuracy"]
    with steps.step("Export a SavedModel that takes raw text"):
        saved_model = os.path.join(options.output_dir, "saved_model")
        run("export", model_dir=model_dir, output_dir=saved_model)
    with steps.step("Ask the SavedModel, in a process without this package"):
        raw_accuracy = _ask(options, saved_model, question)

    results = {
        "chance": corpus.CHANCE,
        "accuracy": accuracy,
        "accuracy_from_raw_text": raw_accuracy,
        "seconds": steps.seconds,
    }
    _write_json(os.path.join(options.output_dir, "results.json"), results)
    example = os.path.join(options.output_dir, "example.json")
    _write_json(example, _example_of(question[0]))
    _report(options, results, model_dir, picture, saved_model, example)
    worst = min(accuracy, raw_accuracy)
    if worst < options.min_accuracy:
        raise UserError(
            f"The model got {worst:.1%} of the held-out records right, "
            f"expected at least {options.min_accuracy:.0%}. It may need more "
            "training: increase --train_steps."
        )


class _Steps:
    def __init__(self):
        self.seconds = {}

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        number = len(self.seconds) + 1
        print(f"\n[{number}/{_NUM_STEPS}] {title}", flush=True)
        start = time.perf_counter()
        yield
        self.seconds[title] = time.perf_counter() - start
        print(f"      ({self.seconds[title]:.1f} s)", flush=True)


def prepare_output_dir(output_dir: str) -> None:
    """Creates an empty output directory; replaces an earlier demo's directory.

    Raises:
        UserError: the directory has files but was not made by a demo, or it
            cannot be created.
    """
    marker = os.path.join(output_dir, MARKER_FILE)
    try:
        if os.path.exists(marker):
            shutil.rmtree(output_dir)
        os.makedirs(output_dir, exist_ok=True)
        if os.listdir(output_dir):
            raise UserError(
                f"{output_dir} exists and was not made by the demo. Choose "
                "another directory with --output_dir, or empty it."
            )
        _write_json(marker, {"about": "The demo replaces this directory."})
    except OSError as error:
        raise UserError(
            f"The output directory {output_dir} cannot be created: {error}. "
            "Choose another one with --output_dir."
        ) from error


def _read_json(path: str):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _write_json(path: str, value) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)


def _read_question(path: str | None) -> list[dict]:
    """Reads the user's questions, to find errors before training starts."""
    if path is None:
        return [QUESTION]
    # This module imports TensorFlow, so it is only imported for a file.
    from etcmodel.demo import ask

    try:
        return ask.read_records(path)
    except SystemExit as error:
        raise UserError(f"--question: {error}") from None


def _example_of(record: dict) -> dict[str, str]:
    """Converts a record to a request for `serve`, with one text per input."""
    return {
        "query": record["query"],
        "candidates": "\n".join(record["candidates"]),
        "text": "\n\n".join(record["supports"]),
    }


def _corpus_file(options: Options, split: str) -> str:
    return os.path.join(options.output_dir, "corpus", f"{split}.json")


def _write_corpus(options: Options) -> None:
    os.makedirs(os.path.join(options.output_dir, "corpus"))
    sizes = {"train": options.num_train, "heldout": options.num_heldout}
    for split in corpus.SPLITS:
        records = corpus.make_records(
            sizes[split], split=split, seed=options.seed
        )
        corpus.write_records(_corpus_file(options, split), records)
        print(f"  {len(records):5d} records: {_corpus_file(options, split)}")
    example = records[0]
    document = textwrap.indent(
        textwrap.fill(example["supports"][0], 72), "    | "
    )
    print(
        f"  The first record asks {example['query']!r} about\n"
        f"    {', '.join(example['candidates'])}\n"
        f"  and has {len(example['supports'])} documents. One of them is:\n"
        f"{document}"
    )


def _write_vocab(options: Options) -> str:
    # TensorFlow is imported here, so that its log messages appear in this step.
    from etcmodel.demo import vocab

    texts = [
        text
        for record in _read_json(_corpus_file(options, "train"))[:1000]
        for text in (*record["supports"], record["query"])
    ]
    vocab_file = os.path.join(options.output_dir, "vocab.txt")
    size = vocab.build_vocab(texts, vocab_file)
    print(f"  {size} tokens: {vocab_file}")
    return vocab_file


def _train(options: Options, run: Callable) -> str:
    import tensorflow as tf

    config_file = os.path.join(options.output_dir, "train.json")
    _write_json(config_file, train_config(options))
    tf.keras.utils.set_random_seed(options.seed)
    print(
        f"  The accuracy stays near chance ({corpus.CHANCE:.1%}) for about 100 "
        "steps and then rises."
    )
    model_dir = os.path.join(options.output_dir, "model")
    run(
        "train",
        experiment="etc/wikihop",
        mode="train",
        config_file=config_file,
        model_dir=model_dir,
    )
    return model_dir


def _ask(options: Options, saved_model: str, question: list[dict]) -> float:
    """Runs `ask.py` in a new process; returns the held-out accuracy."""
    question_file = os.path.join(options.output_dir, "question.json")
    corpus.write_records(question_file, question)
    heldout_file = _corpus_file(options, "heldout")
    script = os.path.join(options.output_dir, ASK_FILE)
    here = os.path.dirname(os.path.abspath(__file__))
    shutil.copyfile(os.path.join(here, ASK_FILE), script)
    answers_file = os.path.join(options.output_dir, "answers.json")
    arguments = [script, saved_model, question_file, heldout_file]
    print(f"  $ {shlex.join([_shown_python(), *arguments])}", flush=True)
    # With -I, Python imports only installed packages.
    done = subprocess.run(
        [sys.executable, "-I", *arguments, "--output", answers_file],
        check=False,
    )
    if done.returncode:
        raise UserError(
            f"{script} failed with exit code {done.returncode}; see the error "
            "above."
        )
    answers = _read_json(answers_file)
    if answers["etcmodel_modules"]:
        raise UserError(
            f"{script} imported {answers['etcmodel_modules']}, expected no "
            "module of this package."
        )
    counts = answers["files"][heldout_file]
    return counts["num_right"] / counts["num_known"]


def _run_command(run, command: str, **flag_values) -> None:
    """Prints a command of `python -m etcmodel` and runs it in this process."""
    arguments = [command]
    for name, value in flag_values.items():
        if isinstance(value, bool):
            arguments.append(f"--{'' if value else 'no'}{name}")
        else:
            arguments.append(f"--{name}={value}")
    shown = shlex.join([_shown_python(), "-m", "etcmodel", *arguments])
    print(f"  $ {shown}", flush=True)
    if run(arguments):
        raise UserError(f"The step {command!r} failed; see the error above.")


def _shown_python() -> str:
    """Returns this Python's path, relative if inside the current directory."""
    relative = os.path.relpath(sys.executable)
    return sys.executable if relative.startswith(os.pardir) else relative


def _report(
    options: Options,
    results: dict,
    model_dir: str,
    picture: str,
    saved_model: str,
    example: str,
) -> None:
    python = _shown_python()
    print(
        f"""
Results on {options.num_heldout} held-out records:
  chance                       {results["chance"]:7.1%}
  following one trade only     {1 / 3:7.1%}
  ETC                          {results["accuracy"]:7.1%}
  ETC, raw text to SavedModel  {results["accuracy_from_raw_text"]:7.1%}
Time: {sum(results["seconds"].values()):.0f} s

Files:
  corpus                  {os.path.join(options.output_dir, "corpus")}
  TensorBoard logs        {model_dir}
  picture of attention    {picture}
  SavedModel              {saved_model}
To view the logs, or to ask the model a question:
  {python} -m tensorboard.main --logdir={model_dir}
  {python} {os.path.join(options.output_dir, ASK_FILE)} {saved_model}
To ask it in a browser, at http://127.0.0.1:8501/:
  {python} -m etcmodel serve --saved_model={saved_model} --example={example}""",
        flush=True,
    )
