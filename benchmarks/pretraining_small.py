r"""Pre-training on a small text: from random weights, or those of a BERT.

Pre-trains small models with the package's own commands, with masked words and
sentences (CPC), and with masked words alone; and measures them on articles that
they have not seen, next to what guesses without looking at the text:

*   the unigram entropy: the loss of knowing how frequent each word of the
    training articles is, and nothing else (0.5 added to each count);
*   chance: how often a blind guess is right which of the masked sentences of a
    batch stood at a place.

    python -m benchmarks.pretraining_small --corpus=wiki.valid.raw \
        --vocab_file=vocab.txt --lift=all-MiniLM-L6-v2

Every fifth article is for measuring (`--held_out_every`), eight times: without
the first paragraph, the second, and so on, so that each time other sentences
are masked. "first" is after a tenth of the steps.
"""

import json
import math
import os
import re
import tempfile
from collections.abc import Iterable
from collections.abc import Mapping

import numpy as np
from absl import app
from absl import flags

from benchmarks import training_runs
from etcmodel.datasets import documents

_BATCH_SIZE = 8
_LONG_LENGTH, _GLOBAL_LENGTH = 512, 64
_MEASURES = (
    "mlm_loss",
    "mlm_accuracy",
    "cpc_loss",
    "cpc_accuracy",
    "cpc_chance",
)


def unigram_entropy(
    train: Iterable[int], dev: Iterable[int], vocab_size: int
) -> float:
    """What a text costs if only the frequencies of another are known.

    Example: for the tokens `0 0 1` and `0 1` of two there are, it is
    `-(ln(2.5 / 4) + ln(1.5 / 4)) / 2`.

    Args:
        train: token ids that are counted.
        dev: token ids that are foreseen.
        vocab_size: number of tokens.

    Returns:
        Nats a token.
    """
    counts = np.bincount(np.fromiter(train, int), minlength=vocab_size) + 0.5
    found = np.bincount(np.fromiter(dev, int), minlength=vocab_size)
    shares = found / found.sum()
    return float(-np.sum(shares * np.log(counts / counts.sum())))


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the program.

    Args:
        flag_values: where to define them.
    """
    for name, text in (
        (
            "corpus",
            "Text to learn from, as `preprocess --task=pretrain` reads.",
        ),
        ("vocab_file", "WordPiece vocabulary or SentencePiece model."),
        ("lift", "Directory of a BERT of that vocabulary to begin with, too."),
        ("output", "JSON file for the numbers."),
    ):
        flags.DEFINE_string(name, None, text, flag_values=flag_values)
    flags.DEFINE_multi_string(
        "only", [], "A row to train, if not all.", flag_values=flag_values
    )
    for name, value, text in (
        ("steps", 600, "Training steps, of 8 examples of 512 tokens."),
        ("lift_steps", 250, "The same, of the lifted model."),
        ("hidden_size", 256, "Of the encoder, unless it is lifted."),
        ("layers", 4, "Of the encoder, unless it is lifted."),
        ("held_out_every", 5, "One article of so many is measured on."),
        ("draws", 8, "How often."),
    ):
        flags.DEFINE_integer(name, value, text, flag_values=flag_values)
    flags.DEFINE_float(
        "learning_rate", 1e-3, "The highest.", flag_values=flag_values
    )
    flags.DEFINE_float(
        "lift_learning_rate",
        5e-4,
        "The same, of the lifted model.",
        flag_values=flag_values,
    )


def _read_tokens(records: str) -> Iterable[int]:
    """All tokens of preprocessed texts."""
    import tensorflow as tf

    from etcmodel.pipeline import tfrecords

    files = tfrecords.find_files(records)
    for serialized in tf.data.TFRecordDataset(
        files, tfrecords.compression_type(files)
    ).as_numpy_iterator():
        stored = tf.train.Example.FromString(serialized).features.feature
        yield from stored["token_ids"].int64_list.value


def prepare(values: flags.FlagValues, folder: str) -> float:
    """Divides a text, and preprocesses both parts.

    Args:
        values: the flags.
        folder: where `train` and `dev` are written.

    Returns:
        The unigram entropy.
    """
    articles = list(documents.FORMAT.read(values.corpus))
    tokens = {}
    for split in ("train", "dev"):
        path = os.path.join(folder, f"{split}.jsonl")
        with open(path, "w", encoding="utf-8") as stream:
            for i, article in enumerate(articles):
                held_out = i % values.held_out_every == 0
                if held_out != (split == "dev"):
                    continue
                paragraphs = article.text.split("\n")
                for draw in range(values.draws if held_out else 1):
                    text = "\n".join(paragraphs[draw:])
                    if text.strip():
                        stream.write(json.dumps({"text": text}) + "\n")
        records = os.path.join(folder, split)
        training_runs.run_command(
            "preprocess",
            "--task=pretrain",
            f"--input={path}",
            f"--split={split}",
            f"--vocab_file={values.vocab_file}",
            f"--output_dir={records}",
            f"--long_length={_LONG_LENGTH}",
            f"--global_length={_GLOBAL_LENGTH}",
            "--num_shards=4",
        )
        tokens[split] = list(_read_tokens(records))
    with open(
        os.path.join(folder, "dev", "preprocessing_config.json")
    ) as stream:
        vocab_size = json.load(stream)["vocab_size"]
    return unigram_entropy(tokens["train"], tokens["dev"], vocab_size)


def pretrain(
    folder: str,
    name: str,
    experiment: str,
    steps: int,
    learning_rate: float,
    encoder: Mapping[str, object],
    *options: str,
) -> dict[str, float]:
    """Pre-trains a model and measures it.

    Args:
        folder: with what `prepare` wrote.
        name: of the run.
        experiment: what to train.
        steps: how long.
        learning_rate: the highest.
        encoder: values of the encoder's configuration.
        *options: further flags of `train`.

    Returns:
        The measures at the end, and with "first_" in front those after a tenth
        of the steps; and `seconds`.
    """
    size = {"global_batch_size": _BATCH_SIZE}
    data = {"input_path": os.path.join(folder, "train"), **size}
    model_dir = os.path.join(folder, name)
    first = max(steps // 10, 1)
    trainer = training_runs.make_trainer(steps, learning_rate, interval=first)
    # The first one, too.
    kept = {"checkpoint_interval": first, "max_to_keep": steps // first + 1}
    seconds = training_runs.train(
        model_dir,
        experiment,
        {
            "train_data": data,
            "validation_data": size,
            "model": {"encoder": encoder},
        },
        trainer | kept,
        ["--mode=train", *options],
    )
    measured = {"seconds": seconds}
    for prefix, step in (("", steps), ("first_", first)):
        metrics = training_runs.evaluate(
            model_dir,
            os.path.join(folder, "dev"),
            f"--checkpoint={model_dir}/ckpt-{step}",
        )
        measured |= {prefix + x: metrics[x] for x in _MEASURES if x in metrics}
    return measured


def print_table(rows: Mapping[str, Mapping[str, float]]) -> None:
    """Prints the measures.

    Args:
        rows: name -> measures.
    """
    columns = (
        ("MLM loss", "mlm_loss"),
        ("at first", "first_mlm_loss"),
        ("MLM right", "mlm_accuracy"),
        ("CPC right", "cpc_accuracy"),
        ("at first", "first_cpc_accuracy"),
        ("CPC loss", "cpc_loss"),
        ("at first", "first_cpc_loss"),
        ("chance", "cpc_chance"),
        ("seconds", "seconds"),
    )
    width = max(map(len, rows))
    print(f"{'':{width}}" + "".join(f"{title:>11}" for title, _ in columns))
    for name, row in rows.items():
        cells = (
            f"{row[key]:11.3f}" if key in row else f"{'':11}"
            for _, key in columns
        )
        print(f"{name:{width}}" + "".join(cells))


def measure(values: flags.FlagValues, folder: str) -> dict:
    """Pre-trains all models.

    Args:
        values: the flags.
        folder: where everything is written.

    Returns:
        Name -> measures.
    """
    entropy = prepare(values, folder)
    rows = {"unigram entropy": {"mlm_loss": entropy}}
    print_table(rows)
    size = values.hidden_size
    encoder = {
        "preset": "tiny",
        "hidden_size": size,
        "num_hidden_layers": values.layers,
        "num_attention_heads": math.ceil(size / 64),
        "intermediate_size": 4 * size,
        "local_radius": 42,
    }
    own = (values.steps, values.learning_rate)
    runs = [
        ("random weights", "etc/pretrain", *own, encoder),
        ("random weights, no CPC", "etc/pretrain_no_cpc", *own, encoder),
    ]
    if values.lift:
        lifted = os.path.join(folder, "lifted")
        sizes = training_runs.lift(values.lift, lifted)
        start = f"--init_checkpoint={lifted}"
        own = (values.lift_steps, values.lift_learning_rate)
        runs += [
            ("random weights of a BERT's sizes", "etc/pretrain", *own, sizes),
            ("lifted", "etc/pretrain", *own, {}, start),
            ("lifted, no CPC", "etc/pretrain_no_cpc", *own, {}, start),
        ]
    for name, *run in runs:
        if values.only and name not in values.only:
            continue
        label = re.sub(r"\W+", "_", name)
        rows[name] = pretrain(folder, label, *run)
        print_table(rows)
    return rows


def main(argv: list[str]) -> None:
    """Measures and prints a table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    values = flags.FLAGS
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(values, folder)
    if values.output:
        with open(values.output, "w", encoding="utf-8") as stream:
            json.dump(rows, stream, indent=2)
            stream.write("\n")


if __name__ == "__main__":
    define_flags(flags.FLAGS)
    flags.mark_flags_as_required(["corpus", "vocab_file"])
    app.run(main)
