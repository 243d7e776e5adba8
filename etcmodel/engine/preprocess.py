"""Turns data files or rows into TFRecords with features."""

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
        output_dir: the directory to make, on a disk or in a bucket.
        split: "train": every record must have its answer; what cannot be
            learned is left out. "dev", for validation: likewise, but nothing
            is left out. "predict": answers are neither needed nor stored.
        num_shards: number of TFRecord files.
        overwrite: replace the output directory if it exists.
        vocab_file: the vocabulary: a WordPiece vocab.txt with one token a line,
            or a SentencePiece model; by default that of `like`. For WordPiece,
            tokenizer_config.json and tokenizer.json beside the vocabulary set
            the defaults of `lower_case`, `strip_accents` and
            `tokenize_chinese_chars`.
        like: records that were preprocessed before, or a run of `train` that
            read them; their sizes, labels, names of fields and vocabulary are
            the defaults.
        runner: run on an engine of Apache Beam: DirectRunner, FlinkRunner,
            SparkRunner, DataflowRunner and others. Its own options follow as
            they are, such as --direct_num_workers=4. Needs the extra "beam".
        beam_options: options of Beam, such as "--direct_num_workers=4".
        validation_fraction: share of the records that is kept for validation:
            the output has two directories, train and dev.
        seed: seed of the validation split.
        task_options: the task's own options, its preprocessing configuration.
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
    """The written records of a split.

    Attributes:
        directory: their directory.
        num_read: number of records read.
        num_written: number of records that have examples.
        totals: counts of parts of records, such as "tokens_cut".
        summary: shares and means, such as of tokens cut.
        skipped: how many records were left out and why; "" for none.
        notes: remarks on counts that are unusual.
    """

    directory: str
    num_read: int
    num_written: int
    totals: Mapping[str, int]
    summary: Mapping[str, float]
    skipped: str
    notes: list[str]


class Result(NamedTuple):
    """What `preprocess` wrote.

    Attributes:
        splits: name -> what was written of it.
        tokenizer: the settings of the tokenizer and their source, for people;
            "" for SentencePiece.
    """

    splits: Mapping[str, Split]
    tokenizer: str


def make_all_examples(examples, records, split, bad_records):
    """Makes examples in parallel, in order; yields those of batches."""
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
    """Writes the records of data files, or of a collection, as TFRecords.

    Args:
        options: what to read and to write. `input` may also be a collection of
            rows, for the tasks of users' own documents.
        reporter: shows the progress.
        name: of such a collection, for messages.

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
            f"`split={options.split}` needs `like=DIR`, the records that are "
            f"trained on: they tell what {task.name} has to know, such as the "
            "labels."
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
        records = read(paths, "train", BadRecords(options.skip_bad_records))
        splits = validation_split.choose(
            records,
            task.dataset,
            options.validation_fraction,
            options.seed,
            reporter,
        )
    if task.complete and not like:
        bad_records = BadRecords(options.skip_bad_records)
        config = load(task.complete)(
            config,
            _kept(splits["train"], read(paths, "train", bad_records)),
        )
        # Known labels may have other spellings in the data.
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
            f"`input`: {task.name} reads files in their official format. Give "
            "their names."
        )
    if options.runner is not None:
        raise UserError("`runner` needs files as `input`.")
    # They are read several times.
    return [], list(rows) if isinstance(rows, Iterator) else rows


def _read_rows(format_, rows, name, paths, split, bad_records=None, at=None):
    """Reads rows with the signature of `Format.read`."""
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
            "`validation_fraction` makes both splits, train and dev: leave "
            "`split` out."
        )


def _kept(keep, records):
    return records if keep is None else filter(keep, records)


class _Written(NamedTuple):
    """Counts of a written split.

    Attributes:
        records: numbers of records: written and left out.
        totals: counts of parts of records.
        bad_records: those that were skipped.
        shards: name of a file -> its numbers of examples and of bytes.
    """

    records: collections.Counter[str]
    totals: Mapping[str, int]
    bad_records: BadRecords
    shards: Mapping[str, Mapping[str, int]]


def _write_locally(
    read, directory, paths, options, examples, split, keep, reporter
) -> _Written:
    """Writes the TFRecords of a split into a directory."""
    from etcmodel.pipeline import tfrecords

    bad_records = BadRecords(options.skip_bad_records)

    def read_split(*args):
        return _kept(keep, read(*args))

    with tfrecords.ShardedWriter(
        directory, split, options.num_shards
    ) as writer:
        records, totals = _write_examples(
            examples, read_split, paths, split, bad_records, writer, reporter
        )
    return _Written(records, totals, bad_records, writer.describe())


def _distributed():
    """Imports Beam without its warnings about missing cloud packages."""
    extras.require_extra("beam")
    logging.disable(logging.WARNING)
    try:
        from etcmodel.engine import distributed
    finally:
        logging.disable(logging.NOTSET)
    return distributed


def _beam_options(options: Options):
    """Returns the options of Beam, or None without a `runner`."""
    if options.runner is None:
        if options.beam_options:
            raise UserError("`beam_options` needs `runner`.")
        return None
    return _distributed().parse_options(
        options.runner, options.beam_options or []
    )


def _write_with_beam(
    beam, directory, paths, options, examples, split, keep
) -> _Written:
    """Does the same as `_write_locally` on the workers of a runner."""
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
    """Writes all other files of a split into a directory."""
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
        preprocess_notes.make_notes(totals, had_queries),
    )


def _write_examples(
    examples, read, paths, split, bad_records, writer, reporter
):
    """Writes all records; returns counts of records, and of their content."""
    from etcmodel.pipeline import packing

    records, totals = collections.Counter(), collections.Counter()
    packer, group = examples.make_packer(), None
    with reporter.files(paths, "Preprocessing") as progress:
        source = read(paths, split, bad_records, progress.at)
        for made in make_all_examples(examples, source, split, bad_records):
            for record in made:
                # Only examples of one group are packed together.
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
    """The error that no record could be used."""
    found = ", ".join(
        f"{name.replace('_', ' ')}: {count}"
        for name, count in sorted(totals.items())
        if count
    )
    return UserError(
        f"{path}: no usable record was found. {bad_records.summary()}"
        + (f" Of what was read, {found}." if found else "")
    )


def _write_vocabulary(directory: str, tokenizer, vocab_file: str) -> dict:
    """Copies the vocabulary; returns what is noted about it."""
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
