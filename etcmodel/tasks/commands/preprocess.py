"""`preprocess`: an official data file becomes TFRecords with features."""

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import os
import shutil

from absl import flags

from etcmodel.datasets import files
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.tasks import registry
from etcmodel.tasks.atomic import atomic_directory

DESCRIPTION = """
Reads a data file in the official format of the task, turns every record into
the integers that the model reads (tokens, global tokens, which belongs to
which), and writes them as gzipped TFRecord files, together with

  stats.json      records read, written, left out and dropped; what was cut
  features.json   the sizes used; `train` and `export` read it
  vocab.txt       a copy of the vocabulary (vocab.model for SentencePiece)

The output directory appears only when all is written.
"""

EXAMPLE = """
python -m etcmodel preprocess --task=wikihop --input=train.json \\
    --vocab_file=vocab.txt --output_dir=data/train
"""

REQUIRED = ("task", "input", "output_dir", "vocab_file")

# Flags that set a size of the features, if the task has it:
# name -> (type, what it is, the tasks' own values).
FEATURE_FLAGS = {
    "long_length": (
        int,
        "How many tokens of text a record, or a window of it, may have; more "
        "are cut.",
        "4096",
    ),
    "global_length": (
        int,
        "How many global tokens a record may have.",
        "hotpotqa 256, nq 230, wikihop 430",
    ),
    "max_num_sentences": (
        int,
        "How many sentences a record may have; more are cut.",
        "wikihop 200",
    ),
    "block_length": (
        int,
        "Tokens of a segment.",
        "read_twice_pretrain 512",
    ),
    "num_blocks_per_example": (
        int,
        "Segments that are stored together, of one or more documents; longer "
        "documents are divided.",
        "read_twice_pretrain 128",
    ),
    "max_num_annotations": (
        int,
        "How many mentions a segment may have; more are left out.",
        "read_twice_pretrain 32",
    ),
    "stride": (
        int,
        "How many tokens one window of a page begins after the other.",
        "nq 2048",
    ),
    "question_length": (
        int,
        "How many tokens a question may have; more are cut.",
        "nq 32",
    ),
    "include_html_tokens": (
        bool,
        "Whether HTML tags are in the input, as one of two tokens.",
        "nq true",
    ),
    "fixed_block_size": (
        int,
        "One global token for so many tokens, instead of the page's structure "
        "(an ablation; the paper has 97).",
        "nq: none",
    ),
    "include_unknown_rate": (
        float,
        "Share of windows without the answer that is kept for training.",
        "nq 1.0",
    ),
    "include_unknown_rate_for_unanswerable": (
        float,
        "The same for pages without any answer.",
        "nq: 4 times include_unknown_rate",
    ),
}

STATS_FILE = "stats.json"
_BATCH_SIZE = 8


def define_input_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say which data are read and how.

    Args:
        flag_values: where to define them.
    """
    flags.DEFINE_string(
        "task",
        None,
        f"The task: {', '.join(sorted(registry.TASKS))}.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "input",
        None,
        "The data files in the task's official format, plain or gzipped: "
        "names, or patterns such as nq-train-*.jsonl.gz, with commas between.",
        flag_values=flag_values,
    )


def define_feature_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say how features are made.

    Args:
        flag_values: where to define them.
    """
    flags.DEFINE_string(
        "vocab_file",
        None,
        "The vocabulary: a WordPiece vocab.txt with one token a line (text is "
        "lower-cased), or a SentencePiece model.",
        flag_values=flag_values,
    )
    define = {
        int: functools.partial(flags.DEFINE_integer, lower_bound=1),
        float: functools.partial(flags.DEFINE_float, lower_bound=0.0),
        bool: flags.DEFINE_bool,
    }
    for name, (kind, text, own) in FEATURE_FLAGS.items():
        define[kind](
            name,
            None,
            f"{text} The task's own value by default ({own}).",
            flag_values=flag_values,
        )


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the command.

    Args:
        flag_values: where to define them.
    """
    define_input_flags(flag_values)
    flags.DEFINE_string(
        "output_dir", None, "The directory to make.", flag_values=flag_values
    )
    define_feature_flags(flag_values)
    flags.DEFINE_string(
        "split",
        "train",
        "`train`: every record must have its answer; what cannot be learned is "
        "left out. `dev` (hotpotqa, nq): likewise, but nothing is left out. "
        "`predict`: answers are neither needed nor stored.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "num_shards",
        16,
        "Number of TFRecord files.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "skip_bad_records",
        False,
        "Leave records out that cannot be used, and count them, instead of "
        "ending with an error.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "overwrite",
        False,
        "Replace the output directory if it exists.",
        flag_values=flag_values,
    )


def feature_values(flag_values: flags.FlagValues) -> dict[str, int | None]:
    """The sizes that were given as flags; None for those that were not.

    Args:
        flag_values: the parsed flags.

    Returns:
        name -> value.
    """
    return {name: flag_values[name].value for name in FEATURE_FLAGS}


def check_split(pipeline, split: str) -> None:
    """Checks the flag `--split`.

    Args:
        pipeline: the task's `TaskPipeline`.
        split: the flag.

    Raises:
        UserError: the task has no such split.
    """
    splits = pipeline.dataset.FORMAT.splits
    if split not in splits:
        raise UserError(
            f"--split={split}: {pipeline.name} has {', '.join(splits)}"
        )


def _encode(encoder, records, split):
    """Encodes a batch; if that fails, one by one to find who is to blame.

    Returns:
        What could be encoded, and the `RecordError`s of what could not.
    """
    try:
        return encoder.encode(records, split), []
    except UserError:
        encoded, errors = [], []
        for record in records:
            try:
                encoded.extend(encoder.encode([record], split))
            except RecordError as error:
                errors.append(error)
        return encoded, errors


def encode_all(encoder, records, split, bad_records):
    """Encodes records in the background, in order.

    Args:
        encoder: a `RecordEncoder`.
        records: iterable of records.
        split: what the records are for.
        bad_records: what to do with records that do not fit.

    Yields:
        For every batch what `RecordEncoder.encode` returns.
    """
    workers = os.cpu_count() or 1
    pending = collections.deque()
    records = iter(records)
    with concurrent.futures.ThreadPoolExecutor(workers) as executor:
        while True:
            batch = list(itertools.islice(records, _BATCH_SIZE))
            if batch:
                pending.append(executor.submit(_encode, encoder, batch, split))
            if not pending:
                return
            if not batch or len(pending) > 2 * workers:
                encoded, errors = pending.popleft().result()
                for error in errors:
                    bad_records.report(error)
                yield encoded


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command.

    Args:
        flag_values: the parsed flags.

    Raises:
        UserError: the data, the vocabulary or a flag cannot be used.
    """
    from etcmodel.tasks import tfrecords
    from etcmodel.tasks.progress import file_progress

    paths, split = files.find(flag_values.input), flag_values.split
    pipeline = registry.get_pipeline(flag_values.task)
    check_split(pipeline, split)
    config = pipeline.feature_config(feature_values(flag_values))
    encoder = pipeline.record_encoder(config, flag_values.vocab_file)
    bad_records = BadRecords(flag_values.skip_bad_records)
    totals = collections.Counter()
    written = left_out = 0
    extension = {"wordpiece": ".txt", "sentencepiece": ".model"}
    vocab_name = "vocab" + extension[encoder.tokenizer_kind]
    with atomic_directory(
        flag_values.output_dir, overwrite=flag_values.overwrite
    ) as directory:
        with (
            file_progress(paths, "Preprocessing") as progress,
            tfrecords.ShardedWriter(
                directory, split, flag_values.num_shards
            ) as writer,
        ):
            records = pipeline.dataset.FORMAT.read(
                paths, split, bad_records, progress.at
            )
            packer = encoder.make_packer()
            for encoded in encode_all(encoder, records, split, bad_records):
                for record in encoded:
                    for example in record.examples:
                        for packed in packer.add(example):
                            writer.write(packed)
                    totals.update(record.counts)
                    written += bool(record.examples)
                    left_out += not record.examples
                progress.done(len(encoded))
            for packed in packer.flush():
                writer.write(packed)
        if not writer.count:
            raise UserError(
                f"{flag_values.input}: no usable record was found. "
                f"{bad_records.summary()}"
            )
        stats = {
            "input": [files.full_name(path) for path in paths],
            "records_read": written + left_out + bad_records.total,
            "records_written": written,
            "records_left_out": left_out,
            "examples_written": writer.count,
            "records_dropped": bad_records.total,
            "records_dropped_why": dict(bad_records.counts),
            "records_dropped_examples": bad_records.examples,
            **totals,
        }
        tfrecords.write_json(directory, STATS_FILE, stats)
        shutil.copyfile(
            flag_values.vocab_file, os.path.join(directory, vocab_name)
        )
        tfrecords.write_json(
            directory,
            tfrecords.METADATA_FILE,
            {
                "task": pipeline.name,
                "split": split,
                "features": dataclasses.asdict(config),
                "vocab_file": vocab_name,
                "vocab_fingerprint": tfrecords.fingerprint(
                    flag_values.vocab_file
                ),
                "vocab_size": encoder.vocab_size,
                "special_ids": dict(encoder.special_ids),
                "num_examples": writer.count,
            },
        )
    if bad_records.total:
        print(bad_records.summary())
    print(
        f"Wrote {written} of {stats['records_read']} records to "
        f"{flag_values.output_dir}."
    )
    for name, count in sorted(totals.items()):
        print(f"  {count:10d}  {name.replace('_', ' ')}")
