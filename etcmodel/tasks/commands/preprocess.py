"""`preprocess`: an official data file becomes TFRecords with features."""

import collections
import concurrent.futures
import dataclasses
import itertools
import os
import shutil
import typing

import docstring_parser
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

A task has flags of its own, which set the sizes of its features:
`preprocess --task=TASK --help` shows them.
"""

EXAMPLE = """
python -m etcmodel preprocess --task=wikihop --input=train.json \\
    --vocab_file=vocab.txt --output_dir=data/train
"""

REQUIRED = ("task", "input", "output_dir", "vocab_file")

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


def define_vocabulary_flag(flag_values: flags.FlagValues) -> None:
    """Defines the flag with the vocabulary.

    Args:
        flag_values: where to define it.
    """
    flags.DEFINE_string(
        "vocab_file",
        None,
        "The vocabulary: a WordPiece vocab.txt with one token a line (text is "
        "lower-cased), or a SentencePiece model.",
        flag_values=flag_values,
    )


def define_task_flags(flag_values: flags.FlagValues, task: str) -> None:
    """Defines a flag for each size of a task's features.

    What a flag says is what the task's dataclass says of its field.

    Args:
        flag_values: where to define them.
        task: name of the task.

    Raises:
        UserError: there is no such task.
    """
    config_class = registry.get_pipeline(task).config_class
    texts = {
        parameter.arg_name: parameter.description
        for base in reversed(config_class.__mro__)
        for parameter in docstring_parser.parse(base.__doc__ or "").params
    }
    types = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        # The type of `int | None` is int.
        kind = (*typing.get_args(types[field.name]), types[field.name])[0]
        text = " ".join(texts[field.name].split())
        options = dict(
            name=field.name,
            default=field.default,
            help=f"{text[0].upper()}{text[1:]}",
            flag_values=flag_values,
        )
        if kind is bool:
            flags.DEFINE_bool(**options)
        elif kind is float:
            flags.DEFINE_float(**options, lower_bound=0.0)
        else:
            least = 0 if field.default == 0 else 1
            flags.DEFINE_integer(**options, lower_bound=least)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the command.

    Args:
        flag_values: where to define them.
    """
    define_input_flags(flag_values)
    flags.DEFINE_string(
        "output_dir", None, "The directory to make.", flag_values=flag_values
    )
    define_vocabulary_flag(flag_values)
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


def feature_config(pipeline, flag_values: flags.FlagValues):
    """The sizes of the features that the flags say.

    Args:
        pipeline: the task's pipeline.
        flag_values: the parsed flags.

    Returns:
        See `RecordPipeline.feature_config`.
    """
    return pipeline.feature_config(
        {
            field.name: flag_values[field.name].value
            for field in dataclasses.fields(pipeline.config_class)
        }
    )


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

    split = flag_values.split
    pipeline = registry.get_pipeline(flag_values.task)
    check_split(pipeline, split)
    config = feature_config(pipeline, flag_values)
    paths = files.find(flag_values.input)
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
