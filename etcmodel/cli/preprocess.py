"""`preprocess`: an official data file becomes TFRecords with features."""

import collections
import concurrent.futures
import dataclasses
import itertools
import os

from absl import flags

from etcmodel.datasets import files
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.pipeline.atomic import atomic_directory
from etcmodel.pipeline.options import option
from etcmodel.tasks import registry

DESCRIPTION = """
Reads a data file in the official format of the task, turns every record into
the integers that the model reads (tokens, global tokens, and how they belong
together), and writes them as gzipped TFRecord files, together with

  stats.json      records read, written, left out and dropped; what was cut
  preprocessing_config.json
                  the sizes used, and how many examples and bytes each file has;
                  `train`, `evaluate` and `export` read it
  vocab.txt       a copy of the vocabulary (vocab.model for SentencePiece)
  tokenizer_config.json   the settings of the WordPiece tokenizer

The output directory appears only when everything is written.

A task has flags of its own, which set the sizes of its features:
`preprocess --task=TASK --help` shows them.
"""

EXAMPLE = """
python -m etcmodel preprocess --task=wikihop --input=train.json \\
    --vocab_file=vocab.txt --output_dir=data/train
"""

TASK_FLAGS = True

STATS_FILE = "stats.json"
_BATCH_SIZE = 8
# Flags about how text is prepared for the vocabulary.
_SETTINGS = ("lower_case", "strip_accents", "tokenize_chinese_chars")


@dataclasses.dataclass(kw_only=True)
class InputFlags:
    """What is read.

    Attributes:
        input: the data files in the task's official format, plain or gzipped:
            names, or patterns such as nq-train-*.jsonl.gz, with commas between.
        skip_bad_records: leave records out that cannot be used, and count them,
            instead of ending with an error.
    """

    input: str = option(path="data")
    skip_bad_records: bool = False


@dataclasses.dataclass(kw_only=True)
class VocabularyFlags:
    """The vocabulary and the settings of its tokenizer.

    Attributes:
        vocab_file: the vocabulary: a WordPiece vocab.txt with one token a line,
            or a SentencePiece model. For WordPiece, tokenizer_config.json and
            tokenizer.json beside the vocabulary set the defaults of
            --lower_case, --strip_accents and --tokenize_chinese_chars.
        lower_case: lower-case text; by default, unless the vocabulary has
            capital letters.
        strip_accents: remove accents; by default, if text is lower-cased.
        tokenize_chinese_chars: make each Chinese character a word; on by
            default.
    """

    vocab_file: str = option(path="file")
    lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None


@dataclasses.dataclass(kw_only=True)
class Flags(InputFlags, VocabularyFlags):
    """The flags.

    Attributes:
        task: the task; `python -m etcmodel experiments` lists them.
        output_dir: the directory to make.
        split: "train": every record must have its answer; what cannot be
            learned is left out. "dev", for validation: likewise, but nothing
            is left out. "predict": answers are neither needed nor stored.
        num_shards: number of TFRecord files.
        overwrite: replace the output directory if it exists.
    """

    task: str
    output_dir: str = option(path="new_directory")
    split: str = "train"
    num_shards: int = 16
    overwrite: bool = False


def preprocessing_config(task, flag_values: flags.FlagValues):
    """Makes the preprocessing configuration that the flags describe.

    Args:
        task: the `TaskSpec`.
        flag_values: the parsed flags.

    Returns:
        See `TaskSpec.make_preprocessing_config`.
    """
    return task.make_preprocessing_config(
        {
            field.name: flag_values[field.name].value
            for field in dataclasses.fields(task.preprocessing_config_class)
        }
    )


def example_writer(task, config, flag_values: flags.FlagValues):
    """Makes what preprocesses records, with the flags' vocabulary.

    Args:
        task: the `TaskSpec`.
        config: the preprocessing configuration.
        flag_values: the parsed flags.

    Returns:
        An `ExampleWriter`.

    Raises:
        UserError: the vocabulary or a size cannot be used.
    """
    from etcmodel.feature_utils.text import tokenizer_settings

    settings = tokenizer_settings.TokenizerSettings(
        **{name: flag_values[name].value for name in _SETTINGS}
    )
    return task.make_example_writer(config, flag_values.vocab_file, settings)


def print_tokenizer(tokenizer, flag_values: flags.FlagValues) -> None:
    """Prints the settings of the tokenizer, and where they come from."""
    from etcmodel.feature_utils.text import tokenizer_settings

    settings = tokenizer.settings
    if settings:
        sources = tokenizer_settings.settings_files(
            os.path.dirname(flag_values.vocab_file)
        )
        if any(flag_values[name].value is not None for name in _SETTINGS):
            sources.insert(0, "flags")
        print(
            f"Tokenizer: {settings.describe()} "
            f"(from {', '.join(sources) or 'the vocabulary itself'})."
        )


def check_split(task, split: str) -> None:
    """Checks the flag `--split`.

    Args:
        task: the `TaskSpec`.
        split: the flag.

    Raises:
        UserError: the task has no such split.
    """
    splits = task.dataset.FORMAT.splits
    if split not in splits:
        raise UserError(f"--split={split}: {task.name} has {', '.join(splits)}")


def _make_examples(examples, records, split):
    """Makes examples of a batch; if that fails, record by record.

    Returns:
        The `Examples` of the records, and the `RecordError`s of those that
        cannot be used.
    """
    try:
        return examples.make_examples(records, split), []
    except UserError:
        made, errors = [], []
        for record in records:
            try:
                made.extend(examples.make_examples([record], split))
            except RecordError as error:
                errors.append(error)
        return made, errors


def make_all_examples(examples, records, split, bad_records):
    """Makes examples in the background, in order.

    Args:
        examples: an `ExampleWriter`.
        records: iterable of records.
        split: what the records are for.
        bad_records: what to do with records that do not fit.

    Yields:
        For every batch what `ExampleWriter.make_examples` returns.
    """
    workers = os.cpu_count() or 1
    pending = collections.deque()
    records = iter(records)
    with concurrent.futures.ThreadPoolExecutor(workers) as executor:
        while True:
            batch = list(itertools.islice(records, _BATCH_SIZE))
            if batch:
                pending.append(
                    executor.submit(_make_examples, examples, batch, split)
                )
            if not pending:
                return
            if not batch or len(pending) > 2 * workers:
                made, errors = pending.popleft().result()
                for error in errors:
                    bad_records.report(error)
                yield made


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command.

    Raises:
        UserError: the data, the vocabulary or a flag cannot be used.
    """
    split = flag_values.split
    task = registry.get(flag_values.task)
    check_split(task, split)
    config = preprocessing_config(task, flag_values)
    paths = files.find(flag_values.input)
    import tensorflow as tf

    from etcmodel.cli.progress import file_progress
    from etcmodel.feature_utils.text import tokenizer_settings
    from etcmodel.pipeline import tfrecords

    examples = example_writer(task, config, flag_values)
    bad_records = BadRecords(flag_values.skip_bad_records)
    totals = collections.Counter()
    written = left_out = 0
    extension = {"wordpiece": ".txt", "sentencepiece": ".model"}
    tokenizer = examples.preprocessor.tokenizer
    vocab_name = "vocab" + extension[tokenizer.kind]
    with atomic_directory(
        flag_values.output_dir, overwrite=flag_values.overwrite
    ) as directory:
        with (
            file_progress(paths, "Preprocessing") as progress,
            tfrecords.ShardedWriter(
                directory, split, flag_values.num_shards
            ) as writer,
        ):
            records = task.format(config).read(
                paths, split, bad_records, progress.at
            )
            packer = examples.make_packer()
            for made in make_all_examples(
                examples, records, split, bad_records
            ):
                for record in made:
                    for values in record.rows:
                        for packed in packer.add(values):
                            writer.write(examples.schema.serialize(packed))
                    totals.update(record.counts)
                    written += bool(record.rows)
                    left_out += not record.rows
                progress.done(len(made))
            for packed in packer.flush():
                writer.write(examples.schema.serialize(packed))
        if not writer.count:
            found = ", ".join(
                f"{name.replace('_', ' ')}: {count}"
                for name, count in sorted(totals.items())
                if count
            )
            raise UserError(
                f"{flag_values.input}: no usable record was found. "
                f"{bad_records.summary()}"
                + (f" Of what was read, {found}." if found else "")
            )
        summary = examples.preprocessor.summarize(totals, writer.count)
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
            **summary,
        }
        tfrecords.write_json(directory, STATS_FILE, stats)
        tf.io.gfile.copy(
            flag_values.vocab_file, os.path.join(directory, vocab_name)
        )
        if tokenizer.settings:
            tokenizer_settings.write_settings(directory, tokenizer.settings)
        tfrecords.write_json(
            directory,
            tfrecords.METADATA_FILE,
            {
                "task": task.name,
                "format": tfrecords.FORMAT,
                "split": split,
                # Stored examples do not show how files were read.
                "preprocessing_config": {
                    name: value
                    for name, value in dataclasses.asdict(config).items()
                    if name != task.format_size
                },
                "vocab_file": vocab_name,
                "vocab_fingerprint": tfrecords.fingerprint(
                    flag_values.vocab_file
                ),
                "vocab_size": int(tokenizer.vocab_size),
                "tokenizer": tokenizer.settings
                and tokenizer.settings._asdict(),
                "special_ids": dict(tokenizer.special_ids),
                "num_examples": writer.count,
                "shards": writer.describe(),
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
    for name, value in summary.items():
        print(f"  {value:10.2f}  {name.replace('_', ' ')}")
    print_tokenizer(tokenizer, flag_values)
