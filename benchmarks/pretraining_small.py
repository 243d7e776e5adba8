r"""Pre-trains small models on a small corpus, from random weights or a BERT.

Compares pre-training with masked words and sentences (CPC) and with masked
words only. Evaluates on held-out articles, with two baselines:

*   unigram entropy: the loss of a model that knows only the frequencies of
    words in the training articles (0.5 is added to each count);
*   chance: the accuracy of guessing which of a batch's masked sentences belongs
    at a position.

    python -m benchmarks.pretraining_small --corpus=wiki.valid.raw \
        --vocab_file=vocab.txt --lift=all-MiniLM-L6-v2

Every fifth article is held out (`--held_out_every`). Held-out articles are
evaluated eight times (`--draws`), each time starting at a later paragraph, so
that different sentences are masked. Columns with "first" are measured after a
tenth of the steps.
"""

import json
import math
from collections.abc import Iterable
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from absl import flags

from benchmarks import program
from benchmarks import training_runs
from etcmodel.datasets import documents
from etcmodel.pipeline import tfrecords

_BATCH_SIZE = 8
_LENGTHS = {"long_length": 512, "global_length": 64}


def unigram_entropy(
    train: Iterable[int], dev: Iterable[int], vocab_size: int
) -> float:
    """Computes the cross-entropy of `dev` under unigram frequencies of `train`.

    Example: for a vocabulary of 2, `train` of `0 0 1` and `dev` of `0 1`, it is
    `-(ln(2.5 / 4) + ln(1.5 / 4)) / 2`.

    Returns:
        The cross-entropy in nats per token of `dev`.
    """
    counts = np.bincount(np.fromiter(train, int), minlength=vocab_size) + 0.5
    found = np.bincount(np.fromiter(dev, int), minlength=vocab_size)
    shares = found / found.sum()
    return float(-np.sum(shares * np.log(counts / counts.sum())))


def _read_tokens(records: str) -> Iterable[int]:
    """Yields all tokens of preprocessed texts."""
    files = tfrecords.find_files(records)
    for serialized in tf.data.TFRecordDataset(
        files, tfrecords.compression_type(files)
    ).as_numpy_iterator():
        stored = tf.train.Example.FromString(serialized).features.feature
        yield from stored["token_ids"].int64_list.value


def _texts(values: flags.FlagValues, held_out: bool) -> Iterator[dict]:
    """Yields the training texts, or the held-out texts."""
    for i, article in enumerate(documents.FORMAT.read(values.corpus)):
        if (i % values.held_out_every == 0) != held_out:
            continue
        paragraphs = article.text.split("\n")
        for draw in range(values.draws if held_out else 1):
            text = "\n".join(paragraphs[draw:])
            if text.strip():
                yield {"text": text}


def prepare(values: flags.FlagValues, runs: training_runs.Runs) -> float:
    """Splits and preprocesses the corpus; returns the unigram entropy."""
    tokens = []
    for split in ("train", "dev"):
        texts = _texts(values, split == "dev")
        runs.preprocess(
            *(split, "pretrain", split),
            input=runs.write(f"{split}.jsonl", texts, lines=True),
            vocab_file=values.vocab_file,
            **_LENGTHS,
        )
        tokens.append(list(_read_tokens(runs.path(split))))
    path = runs.path("dev", "preprocessing_config.json")
    with open(path, encoding="utf-8") as stream:
        return unigram_entropy(*tokens, json.load(stream)["vocab_size"])


def _measure(values, runs) -> Iterator[program.Line]:
    yield {"name": "unigram entropy", "mlm_loss": prepare(values, runs)}
    size = values.hidden_size
    encoder = {
        "preset": "tiny",
        "hidden_size": size,
        "num_hidden_layers": values.layers,
        "num_attention_heads": math.ceil(size / 64),
        "intermediate_size": 4 * size,
        "local_radius": 42,
    }
    rows = {
        "random weights": ("etc/pretrain", encoder, None),
        "random weights, no CPC": ("etc/pretrain_no_cpc", encoder, None),
    }
    groups = [(rows, values.steps, values.learning_rate)]
    if values.lift:
        runs.lift(values.lift, "bert", **training_runs.LIFT)
        rows = {
            "random weights of a BERT's sizes": (
                *("etc/pretrain", runs.sizes("bert")),
                None,
            ),
            "lifted": ("etc/pretrain", {}, "bert"),
            "lifted, no CPC": ("etc/pretrain_no_cpc", {}, "bert"),
        }
        groups.append((rows, values.lift_steps, values.lift_learning_rate))
    for rows, steps, rate in groups:
        yield from runs.measure(
            {x: y for x, y in rows.items() if x in (values.only or rows)},
            *(steps, rate, _BATCH_SIZE),
            # Also evaluates the first checkpoint, after a tenth of the steps.
            interval=max(steps // 10, 1),
            keep_all=True,
        )


PROGRAM = training_runs.make_program("pretraining_small", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
