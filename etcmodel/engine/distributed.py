"""Preprocesses with an Apache Beam pipeline, on one machine or many.

The pipeline writes the same examples and statistics as preprocessing without
Beam; only the order of the examples differs. JSON Lines files are split and
read in parallel; each other file is read by one worker.
"""

import collections
import itertools
import json
import os
import re
import tempfile
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import apache_beam as beam
from apache_beam.options import pipeline_options
from apache_beam.utils import shared

from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.pipeline import example_maker
from etcmodel.pipeline import packing
from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.spec import load
from etcmodel.readers import files
from etcmodel.readers.records import Checked
from etcmodel.readers.records import Record
from etcmodel.readers.records import Source
from etcmodel.tasks import registry

_PART_BYTES = 64 << 20
# Tag of the steps' second output, which holds `Note`s.
_NOTES = "notes"
_NOTE_FILE = "note.json"
# Matches the error of a worker in Beam's error message.
_ERROR = re.compile(r"^[ \t]*etcmodel\.[\w.]+: (.+)$", re.MULTILINE)
_STEP = re.compile(r" \[while running '.*$", re.DOTALL)


class Job(NamedTuple):
    """Settings sent to each worker.

    Attributes:
        task: name of the task.
        config: the task's preprocessing configuration, as a dict.
        split: "train", "dev" or "predict".
        paths: all data files.
        vocabulary: name and content of the vocabulary file.
        settings: the tokenizer's settings, as a dict; None for SentencePiece.
        skip: whether bad records are skipped and counted, not raised as errors.
        max_record_bytes: see `files.limited`.
        keep: returns whether a record belongs to the split; None if all do.
        part_bytes: size of the parts that JSON Lines files are split into.
    """

    task: str
    config: Mapping[str, Any]
    split: str
    paths: Sequence[str]
    vocabulary: tuple[str, bytes]
    settings: Mapping[str, Any] | None
    skip: bool
    max_record_bytes: int
    keep: Callable[[Record], bool] | None = None
    part_bytes: int = _PART_BYTES

    def configuration(self) -> Any:
        """Returns the preprocessing configuration."""
        return registry.get(self.task).make_preprocessing_config(self.config)

    def format(self):
        """Returns the `readers.records.Format` of the data files."""
        return registry.get(self.task).format(self.configuration())

    def preprocessor(self) -> type:
        """Returns the class of the task's `Preprocessor`."""
        return load(registry.get(self.task).preprocessor)

    def make_writer(self):
        """Creates the `ExampleMaker`. This builds a graph, so it is slow."""
        from etcmodel.feature_utils.text import tokenizer_settings

        settings = self.settings and tokenizer_settings.TokenizerSettings(
            **self.settings
        )
        name, content = self.vocabulary
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name)
            with open(path, "wb") as stream:
                stream.write(content)
            return example_maker.of_task(
                registry.get(self.task), self.configuration(), path, settings
            )

    def sort_key(self, source: Source | RecordError) -> tuple[int, int]:
        """Returns the file's position in `paths`, and the record's position.

        Sorting by it restores the order in which one machine reads records.
        """
        return self.paths.index(source.path), source.index

    def report(self, error: RecordError, is_read: bool = False) -> Any:
        """Returns a note about a bad record; without `skip`, raises `error`.

        With `is_read`, the record was bad when it was read. Of two splits of
        the same files, only the training split counts such records.
        """
        if not self.skip:
            raise error
        if is_read and self.keep is not None and self.split == "dev":
            return _noted(Note())
        example = self.sort_key(error), str(error)
        return _noted(Note(bad={error.reason: 1}, examples=[example]))


class Note(NamedTuple):
    """Statistics from one step of the pipeline; `_sum_notes` adds them up.

    Attributes:
        records: "written" or "left out" -> number of records.
        totals: name of a statistic, such as "tokens_cut" -> its sum over the
            records.
        bad: reason -> number of records skipped for it.
        examples: sort key and message of the first skipped records.
        shards: name of a TFRecord file -> `tfrecords.describe_shard` of it.
    """

    records: Mapping[str, int] = {}  # noqa: RUF012
    totals: Mapping[str, int] = {}  # noqa: RUF012
    bad: Mapping[str, int] = {}  # noqa: RUF012
    examples: Sequence[tuple] = ()
    shards: Mapping[str, Mapping[str, int]] = {}  # noqa: RUF012


def _noted(note: Note):
    return beam.pvalue.TaggedOutput(_NOTES, note)


def _sum_notes(notes: Iterable[Note]) -> Note:
    """Merges notes into one: sums their counts, and joins the rest."""
    sums = [collections.Counter() for _ in range(3)]
    examples, shards = [], {}
    for note in notes:
        for total, counts in zip(sums, note, strict=False):
            total.update(counts)
        examples += note.examples
        shards |= note.shards
    return Note(*sums, sorted(examples)[: BadRecords.MAX_EXAMPLES], shards)


def _is_repeated(checked: Checked, repeated: Mapping[str, int]) -> bool:
    return checked.is_named and checked.record.id in repeated


class _Reported(BadRecords):
    """Collects a note for each bad record, in `notes`."""

    def __init__(self, job: Job):
        super().__init__(job.skip)
        self._job = job
        self.notes = []

    def report(self, error: RecordError) -> None:
        """Adds a note for a bad record; raises `error` unless `job.skip`."""
        self.notes.append(self._job.report(error, is_read=True))


class _WithFormat(beam.DoFn):
    """Base class of each `DoFn` that needs the format of the data files."""

    def __init__(self, job: Job):
        self._job = job
        self._format = None

    def setup(self):
        """Creates the format once, for all records of this instance."""
        self._format = self._job.format()


class _Read(_WithFormat):
    """Reads the records of a part of a file."""

    def process(self, part: files.Part):
        """Yields usable records, and notes about bad ones."""
        job, read = self._job, self._format.read_part
        for checked in files.limited(
            job.max_record_bytes, read, job.paths, part, job.split
        ):
            if checked.record is None:
                yield job.report(checked.error, is_read=True)
            else:
                yield checked


class _Resolve(_WithFormat):
    """Merges or rejects records that share an id; numbers those that remain.

    A format may split one record into several; the numbers keep their order.
    """

    def process(self, checked: Iterable[Checked]):
        """Yields pairs (number, record) for the records with one id."""
        job, checked, repeated = self._job, list(checked), {}
        if len(checked) > 1:
            checked.sort(key=lambda x: job.sort_key(x.source))
            if self._format.merge is not None:
                repeated = {checked[0].record.id: len(checked)}
        bad_records = _Reported(job)
        records = self._format.usable(checked, bad_records, repeated)
        for number, record in enumerate(records):
            if job.keep is None or job.keep(record):
                yield number, record
        yield from bad_records.notes


class _MakeExamples(beam.DoFn):
    """Makes examples from batches of numbered records."""

    def __init__(self, job: Job):
        self._job = job
        self._shared = shared.Shared()
        self._writer = None

    def setup(self):
        """Builds the graph once per process."""
        self._writer = self._shared.acquire(self._job.make_writer)

    def process(self, batch):
        """Yields serialized examples; to pack them, rows keyed by group."""
        writer, job = self._writer, self._job
        numbers, records = zip(*batch, strict=True)
        counts, totals = collections.Counter(), collections.Counter()
        made = writer.make_examples(records, job.split)
        for number, examples in zip(numbers, made, strict=True):
            if isinstance(examples, RecordError):
                yield job.report(examples)
                continue
            totals.update(examples.counts)
            counts["written" if examples.rows else "left out"] += 1
            if writer.schema.packing is None:
                for values in examples.rows:
                    yield writer.schema.serialize(values)
            elif examples.rows:
                place = examples.source.index, number
                yield packing.group_of(examples.source), (place, examples.rows)
        yield _noted(Note(counts, totals))


def _pack(group, job: Job) -> Iterator[bytes]:
    """Packs the rows of a group in reading order; yields serialized examples.

    This order gives the same packed examples as preprocessing on one machine.
    """
    schema = job.preprocessor().SCHEMA
    packer = packing.ExamplePacker(schema, job.config)
    _, rows_of_records = group
    for _, rows in sorted(rows_of_records, key=lambda x: x[0]):
        for values in rows:
            yield from map(schema.serialize, packer.add(values))
    yield from map(schema.serialize, packer.flush())


def _describe_shard(path: str) -> Note:
    """Returns a note with the description of a TFRecord file."""
    shard = tfrecords.describe_shard(path)
    return Note(shards={os.path.basename(path): shard})


def _to_json(note: Note) -> str:
    return json.dumps(note._asdict(), ensure_ascii=False)


class Preprocess(beam.PTransform):
    """Writes a job's TFRecords and their `Note` into a directory.

    The directory must exist and have the same path on all workers.
    """

    def __init__(self, job: Job, directory: str, num_shards: int):
        super().__init__(f"Preprocess {job.task} {job.split}")
        self._job, self._directory = job, directory
        self._num_shards = num_shards

    def expand(self, pipeline):
        """Returns the path of the note, which is written last."""
        job = self._job
        read = self._read(pipeline)
        records = self._resolve(read.x)
        size = job.preprocessor().RECORDS_AT_ONCE
        made = (
            records.x
            | "Spread records" >> beam.Reshuffle()
            | "Batch" >> beam.BatchElements(size, size)
            | "Make"
            >> beam.ParDo(_MakeExamples(job)).with_outputs(_NOTES, main="x")
        )
        examples = made.x
        if job.preprocessor().SCHEMA.packing is not None:
            examples = (
                examples
                | "Group" >> beam.GroupByKey()
                | "Pack" >> beam.FlatMap(_pack, job)
            )
        shards = (
            examples
            | "Write"
            >> beam.io.WriteToTFRecord(
                os.path.join(self._directory, job.split),
                file_name_suffix=tfrecords.SUFFIX,
                num_shards=self._num_shards,
            )
            | "Spread shards" >> beam.Reshuffle()
            | "Describe" >> beam.Map(_describe_shard)
        )
        notes = (read[_NOTES], records[_NOTES], made[_NOTES], shards)
        return (
            notes
            | "All notes" >> beam.Flatten()
            | "Sum" >> beam.CombineGlobally(_sum_notes)
            | "JSON" >> beam.Map(_to_json)
            | "Write note"
            >> beam.io.WriteToText(
                os.path.join(self._directory, _NOTE_FILE),
                shard_name_template="",
            )
        )

    def _read(self, pipeline):
        """Splits the files into parts and reads the parts in parallel."""
        job = self._job
        parts = [
            part
            for path in job.paths
            for part in files.line_parts(path, job.part_bytes)
        ]
        counts = (
            pipeline
            | "Parts" >> beam.Create([x for x in parts if x.stop is not None])
            | "Spread parts" >> beam.Reshuffle()
            | "Count" >> beam.Map(lambda x: (x, files.count_lines(x)))
        )
        return (
            pipeline
            | "Start" >> beam.Create([parts])
            | "Number"
            >> beam.FlatMap(files.numbered, beam.pvalue.AsDict(counts))
            | "Spread files" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_Read(job)).with_outputs(_NOTES, main="x")
        )

    def _resolve(self, read):
        """Applies `_Resolve` to each record, grouped by id if ids repeat."""
        repeated = beam.pvalue.AsDict(
            read
            | "Named" >> beam.Filter(lambda x: x.is_named)
            | "Ids" >> beam.Map(lambda x: (x.record.id, 1))
            | "Count ids" >> beam.CombinePerKey(sum)
            | "Repeated" >> beam.Filter(lambda x: x[1] > 1)
        )
        alone = (
            read
            | "Alone"
            >> beam.Filter(lambda x, y: not _is_repeated(x, y), repeated)
            | "One" >> beam.Map(lambda x: [x])
        )
        same = (
            read
            | "Same" >> beam.Filter(_is_repeated, repeated)
            | "Key" >> beam.Map(lambda x: (x.record.id, x))
            | "Group ids" >> beam.GroupByKey()
            | "Several" >> beam.Values()
        )
        return (
            (alone, same)
            | "All" >> beam.Flatten()
            | "Resolve"
            >> beam.ParDo(_Resolve(self._job)).with_outputs(_NOTES, main="x")
        )


def pop_note(directory: str) -> Note:
    """Reads the note that `Preprocess` wrote, and removes its file."""
    import tensorflow as tf

    path = os.path.join(directory, _NOTE_FILE)
    with tf.io.gfile.GFile(path) as stream:
        note = Note(**json.loads(stream.read()))
    tf.io.gfile.remove(path)
    return note


def parse_options(
    runner: str, options: Sequence[str]
) -> pipeline_options.PipelineOptions:
    """Parses Beam's options; raises a `UserError` for an unknown option."""
    found = pipeline_options.PipelineOptions([f"--runner={runner}", *options])
    try:
        known = found.get_all_options()
        unknown = found.get_all_options(retain_unknown_options=True)
    except SystemExit:
        raise UserError(
            f"Beam rejects the options {' '.join(options)}; see above. Fix "
            "them, or leave them out."
        ) from None
    unknown = [f"--{name}" for name in unknown if name not in known]
    # A word that is not a flag must be the value of the flag before it.
    for before, word in itertools.pairwise(["", *options]):
        if not word.startswith("-") and not re.fullmatch("-+[^=]+", before):
            unknown.append(word)
    if unknown:
        raise UserError(
            f"Neither preprocess nor Apache Beam has the flag {unknown[0]}. "
            "See `python -m etcmodel preprocess --task=TASK --helpfull`, and "
            "Beam's documentation of the runner."
        )
    try:
        beam.runners.runner.create_runner(runner)
    except (ValueError, ImportError) as error:
        raise UserError(f"--runner={runner}: {error}") from error
    return found


def run(
    job: Job,
    directory: str,
    num_shards: int,
    options: pipeline_options.PipelineOptions,
) -> Note:
    """Runs a job and returns its note.

    Raises:
        UserError: a record or file cannot be used, or Beam's runner failed.
    """
    try:
        with beam.Pipeline(options=options) as pipeline:
            pipeline | Preprocess(job, directory, num_shards)
    except UserError as error:
        raise UserError(_STEP.sub("", str(error))) from error
    except Exception as error:
        found = _ERROR.findall(str(error))
        if found:
            raise UserError(_STEP.sub("", found[-1])) from error
        # A traceback shows a bug of this package on a worker.
        if "Traceback" in str(error):
            raise
        raise UserError(
            f"Beam's runner failed: {str(error).rstrip('.')}. Nothing was "
            "written. If a worker was killed, or had too little memory, run "
            "the same command again."
        ) from error
    return pop_note(directory)
