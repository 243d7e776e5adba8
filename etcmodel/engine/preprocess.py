"""Converts data files or rows to TFRecords of features."""

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import logging
import os
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from etcmodel import extras
from etcmodel.engine import inputs
from etcmodel.engine import paths as paths_lib
from etcmodel.engine import preprocess_notes
from etcmodel.engine import progress as progress_lib
from etcmodel.engine import validation_split
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.pipeline import metadata_files
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.atomic import output_directory
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import load
from etcmodel.readers import files
from etcmodel.tasks import registry


@dataclasses.dataclass(kw_only=True)
class Options(inputs.InputOptions, inputs.VocabularyOptions):
    """Options of `preprocess`.

    Attributes:
        task: the task; `python -m etcmodel experiments` lists them.
        output_dir: the directory to create. It may be in a bucket.
        split: "train", "dev" or "predict". "dev" is for validation. For "train"
            and "dev", every record needs an answer. "train" leaves out records
            that a model cannot be trained on, such as a record whose answer is
            not in its text. For "predict", answers are neither needed nor
            stored.
        num_shards: number of TFRecord files.
        overwrite: replace the output directory if it exists.
        vocab_file: the vocabulary: a WordPiece vocab.txt with one token a line,
            or a SentencePiece model; by default that of `like`. For WordPiece,
            tokenizer_config.json and tokenizer.json beside the vocabulary set
            the defaults of `lower_case`, `strip_accents` and
            `tokenize_chinese_chars`.
        like: preprocessed records, or a run of `train` that read them. Their
            sizes, labels, field names and vocabulary are the defaults.
        runner: Apache Beam runner to use: DirectRunner, FlinkRunner,
            SparkRunner, DataflowRunner or another. Beam's own flags can be
            added, such as --direct_num_workers=4. Needs the extra "beam".
        beam_options: Beam's flags, such as "--direct_num_workers=4".
        validation_fraction: share of the records to hold out for validation.
            The output then has two directories, train and dev.
        seed: seed of the validation split.
        task_options: the task's own options: its preprocessing configuration.
    """

    task: str
    output_dir: str = option(path="new_directory_or_bucket")
    split: str = "train"
    num_shards: int = 16
    overwrite: bool = False
    vocab_file: str | None = option(None, path="file")
    like: str | None = option(None, path="records")
    runner: str | None = None
    beam_options: list[str] | None = option(None, is_flag=False)
    validation_fraction: float | None = None
    seed: int = 0
    task_options: Mapping[str, Any] = dataclasses.field(
        default_factory=dict, metadata={"is_flag": False}
    )


class Split(NamedTuple):
    """Statistics of a split that was written.

    Attributes:
        directory: directory of the TFRecords.
        num_read: number of records read.
        num_written: number of records with at least one example.
        totals: name of a statistic, such as "tokens_cut" -> its sum over the
            records.
        summary: name of a share or mean, such as the share of tokens cut -> its
            value.
        skipped: how many bad records were skipped and why; "" for none.
        notes: warnings about unusual statistics.
    """

    directory: str
    num_read: int
    num_written: int
    totals: Mapping[str, int]
    summary: Mapping[str, float]
    skipped: str
    notes: list[str]


class Result(NamedTuple):
    """Statistics of the records that `preprocess` wrote.

    Attributes:
        splits: name of a split -> its statistics.
        tokenizer: description of the tokenizer's settings and their source; ""
            for SentencePiece.
    """

    splits: Mapping[str, Split]
    tokenizer: str


def make_all_examples(examples, records, split, bad_records):
    """Makes examples in threads; yields a list per batch, in reading order."""
    workers = os.cpu_count() or 1
    pending = collections.deque()
    records = iter(records)
    with concurrent.futures.ThreadPoolExecutor(workers) as executor:
        while True:
            batch = list(
                itertools.islice(records, examples.preprocessor.RECORDS_AT_ONCE)
            )
            if batch:
                pending.append(
                    executor.submit(examples.make_examples, batch, split)
                )
            if not pending:
                return
            if not batch or len(pending) > 2 * workers:
                made = []
                for found in pending.popleft().result():
                    if isinstance(found, RecordError):
                        bad_records.report(found)
                    else:
                        made.append(found)
                yield made


def preprocess(
    options: Options,
    reporter: progress_lib.Reporter | None = None,
    name: str = "records",
) -> Result:
    """Converts data files, or a collection of rows, to TFRecords.

    Args:
        options: the options. For tasks on users' own documents, `input` may
            also be a collection of rows.
        reporter: shows the progress.
        name: name of the collection of rows, for error messages.

    Raises:
        UserError: an option or a record cannot be used; the message names it.
    """
    reporter = reporter or progress_lib.Reporter("quiet")
    options_lib.check(options)
    paths_lib.check(options)
    task = registry.get(options.task)
    inputs.check_split(task, options.split)
    _check_fraction(options)
    if task.complete and options.split != "train" and not options.like:
        raise UserError(
            f"`split={options.split}` of {task.name} needs settings of the "
            "training records, such as their labels. Give the directory of "
            "the training records as `like=DIR`."
        )
    like, options = inputs.with_like(task, options)
    config = inputs.preprocessing_config(task, options.task_options, like)
    beam = _beam_options(options)
    paths, rows = _find_input(task, options)

    def reader(config):
        noted = {*(like or {}).get("reading", ())} - {*options.task_options}
        format_ = inputs.read_format(task, config, noted)
        if rows is not None:
            return functools.partial(_read_rows, format_, rows, name)
        return functools.partial(
            files.limited, options.max_record_bytes, format_.read
        )

    read = reader(config)
    splits = {options.split: None}
    if options.validation_fraction is not None:
        splits = validation_split.choose(
            _read_all(read, paths, options, reporter),
            task.dataset,
            options.validation_fraction,
            options.seed,
            reporter,
        )
    if task.complete and not like:
        records = _read_all(read, paths, options, reporter)
        config = load(task.complete)(config, _kept(splits["train"], records))
        # With the labels known, the format can unify their spellings.
        read = reader(config)
    examples = inputs.make_example_maker(task, config, options)
    import tensorflow as tf

    made = {}
    with output_directory(
        options.output_dir, overwrite=options.overwrite
    ) as directory:
        for split, keep in splits.items():
            place, final = directory, options.output_dir
            if len(splits) > 1:
                place = os.path.join(directory, split)
                final = os.path.join(options.output_dir, split)
                tf.io.gfile.makedirs(place)
            arguments = place, paths, options, examples, split, keep
            if beam is None:
                written = _write_locally(read, *arguments, reporter)
            else:
                written = _write_with_beam(beam, *arguments)
            sources = paths if rows is None else [name]
            made[split] = _write_notes(
                written, place, sources, options, examples, split, like
            )._replace(directory=final)
    tokenizer = examples.preprocessor.tokenizer
    return Result(made, inputs.describe_tokenizer(tokenizer, options))


def _find_input(task, options: Options) -> tuple[list[str], Any]:
    """Returns the files to read, or else the rows."""
    rows = options.input
    if isinstance(rows, str | os.PathLike):
        return files.find(os.fspath(rows)), None
    if not hasattr(
        task.format(task.make_preprocessing_config({})), "read_rows"
    ):
        raise UserError(
            f"`input`: {task.name} reads files in their official format, not "
            "rows. Give paths of files."
        )
    if options.runner is not None:
        raise UserError(
            "`runner` needs files as `input`, got rows. Give paths of files."
        )
    # Rows are read several times, but an iterator only once.
    return [], list(rows) if isinstance(rows, Iterator) else rows


def _read_rows(format_, rows, name, paths, split, bad_records=None, at=None):
    """Adapts `format_.read_rows` to the signature of `Format.read`."""
    del paths, at
    return format_.read_rows(rows, split, bad_records, name)


def _check_fraction(options: Options) -> None:
    fraction = options.validation_fraction
    if fraction is None:
        return
    if not 0 < fraction < 1:
        raise UserError(
            f"`validation_fraction={fraction:g}`: expected a number between 0 "
            "and 1, such as 0.1."
        )
    if options.split != "train":
        raise UserError(
            "`validation_fraction` writes both splits, train and dev. Leave "
            "out `split`."
        )


def _kept(keep, records):
    return records if keep is None else filter(keep, records)


class _Written(NamedTuple):
    """Statistics of a split before they are summarized.

    Attributes:
        records: "written" or "left out" -> number of records.
        totals: name of a statistic -> its sum over the records.
        bad_records: counts of skipped records.
        shards: name of a TFRecord file -> `tfrecords.describe_shard` of it.
    """

    records: collections.Counter[str]
    totals: Mapping[str, int]
    bad_records: BadRecords
    shards: Mapping[str, Mapping[str, int]]


def _write_locally(
    read, directory, paths, options, examples, split, keep, reporter
) -> _Written:
    """Writes the TFRecords of a split in this process."""
    from etcmodel.pipeline import tfrecords

    bad_records = BadRecords(options.skip_bad_records)

    def read_split(paths, split, bad_records, at):
        if keep is not None and split == "dev":
            # Such records belong to no split; the training split counts them.
            bad_records = BadRecords(bad_records.skip)
        return _kept(keep, read(paths, split, bad_records, at))

    with tfrecords.ShardedWriter(
        directory, split, options.num_shards
    ) as writer:
        records, totals = _write_examples(
            examples, read_split, paths, split, bad_records, writer, reporter
        )
    return _Written(records, totals, bad_records, writer.describe())


def _distributed():
    """Imports the Beam pipeline without warnings about cloud packages."""
    extras.require_extra("beam")
    logging.disable(logging.WARNING)
    try:
        from etcmodel.engine import distributed
    finally:
        logging.disable(logging.NOTSET)
    return distributed


def _beam_options(options: Options):
    """Parses Beam's options; returns None without a `runner`."""
    if options.runner is None:
        if options.beam_options:
            raise UserError(
                "`beam_options` needs a Beam runner. Set `runner`, for "
                "example `runner=DirectRunner`."
            )
        return None
    return _distributed().parse_options(
        options.runner, options.beam_options or []
    )


def _write_with_beam(
    beam, directory, paths, options, examples, split, keep
) -> _Written:
    """Writes the TFRecords of a split on the workers of a Beam runner."""
    import tensorflow as tf

    distributed = _distributed()
    vocab_file = options.vocab_file
    tokenizer = examples.preprocessor.tokenizer
    with tf.io.gfile.GFile(vocab_file, "rb") as stream:
        vocabulary = os.path.basename(vocab_file), stream.read()
    job = distributed.Job(
        examples.spec.name,
        dataclasses.asdict(examples.preprocessor.config),
        split,
        paths,
        vocabulary,
        tokenizer.settings and tokenizer.settings._asdict(),
        options.skip_bad_records,
        options.max_record_bytes,
        keep,
    )
    note = distributed.run(job, directory, options.num_shards, beam)
    bad_records = BadRecords(options.skip_bad_records)
    bad_records.counts.update(note.bad)
    bad_records.examples = [message for _, message in note.examples]
    records = collections.Counter(note.records)
    return _Written(records, note.totals, bad_records, note.shards)


def _write_notes(
    written, directory, paths, options, examples, split, like
) -> Split:
    """Writes a split's statistics, vocabulary and metadata."""
    from etcmodel.pipeline import tfrecords

    task, config = examples.spec, examples.preprocessor.config
    records, totals, bad_records, shards = written
    count = sum(shard["examples"] for shard in shards.values())
    if not count:
        raise _nothing_written(", ".join(paths), totals, bad_records)
    summary = examples.preprocessor.summarize(totals, count)
    stats = {
        "input": [files.full_name(path) for path in paths],
        "records_read": sum(records.values()) + bad_records.total,
        "records_written": records["written"],
        "records_left_out": records["left out"],
        "examples_written": count,
        "records_dropped": bad_records.total,
        "records_dropped_why": dict(bad_records.counts),
        "records_dropped_examples": bad_records.examples,
        **totals,
        **summary,
    }
    tfrecords.write_json(directory, "stats.json", stats)
    vocabulary = _write_vocabulary(
        directory, examples.preprocessor.tokenizer, options.vocab_file
    )
    metadata = {
        "task": task.name,
        "format": tfrecords.FORMAT,
        "split": split,
        "preprocessing_config": task.stored_sizes(config),
        **vocabulary,
        "num_examples": count,
        "shards": shards,
    }
    if reading := task.noted_fields(config):
        metadata["reading"] = reading
    without_query = totals.get("records_without_query")
    if without_query is not None:
        metadata["has_queries"] = without_query == 0
    metadata_files.write(
        os.path.join(directory, tfrecords.METADATA_FILE), metadata
    )
    had_queries = bool(like and like.get("has_queries"))
    return Split(
        directory,
        stats["records_read"],
        records["written"],
        totals,
        summary,
        bad_records.summary() if bad_records.total else "",
        preprocess_notes.make_notes(
            totals,
            had_queries,
            count if split == "train" else 0,
            sum(tfrecords.longest(list(shards.values())).values()),
        ),
    )


def _read_all(read, paths, options, reporter) -> Iterator[Any]:
    """Yields the training records, and shows the progress."""
    bad_records = BadRecords(options.skip_bad_records)
    with reporter.files(paths, "Reading") as progress:
        for record in read(paths, "train", bad_records, progress.at):
            yield record
            progress.done()


def _write_examples(
    examples, read, paths, split, bad_records, writer, reporter
):
    """Writes examples; returns `_Written.records` and `_Written.totals`."""
    from etcmodel.pipeline import packing

    records, totals = collections.Counter(), collections.Counter()
    packer, group = examples.make_packer(), None
    with reporter.files(paths, "Preprocessing") as progress:
        source = read(paths, split, bad_records, progress.at)
        for made in make_all_examples(examples, source, split, bad_records):
            for record in made:
                # Only examples of the same group are packed together.
                if (of_record := packing.group_of(record.source)) != group:
                    group = of_record
                    for packed in packer.flush():
                        writer.write(examples.schema.serialize(packed))
                for values in record.rows:
                    for packed in packer.add(values):
                        writer.write(examples.schema.serialize(packed))
                totals.update(record.counts)
                records["written" if record.rows else "left out"] += 1
            progress.done(len(made))
        for packed in packer.flush():
            writer.write(examples.schema.serialize(packed))
    return records, totals


def _nothing_written(path, totals, bad_records) -> UserError:
    """Returns the error for input without a usable record."""
    found = ", ".join(
        f"{name.replace('_', ' ')}: {count}"
        for name, count in sorted(totals.items())
        if count
    )
    return UserError(
        f"{path}: no usable record was found. {bad_records.summary()}"
        + (f" Statistics: {found}." if found else "")
    )


def _write_vocabulary(directory: str, tokenizer, vocab_file: str) -> dict:
    """Copies the vocabulary; returns its entries for the metadata."""
    import tensorflow as tf

    from etcmodel.feature_utils.text import tokenizer_settings
    from etcmodel.pipeline import tfrecords

    settings = tokenizer.settings
    name = {"wordpiece": "vocab.txt", "sentencepiece": "vocab.model"}[
        tokenizer.kind
    ]
    tf.io.gfile.copy(vocab_file, os.path.join(directory, name))
    if settings:
        tokenizer_settings.write_settings(directory, settings)
    return {
        "vocab_file": name,
        "vocab_fingerprint": tfrecords.fingerprint(vocab_file),
        "vocab_size": int(tokenizer.vocab_size),
        "tokenizer": settings and settings._asdict(),
        "special_ids": dict(tokenizer.special_ids),
    }
