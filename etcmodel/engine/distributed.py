"""Preprocesses with a pipeline of Apache Beam, on one machine or many.

Examples and statistics are those of one machine alone; only their order
differs. Files of JSON lines are read in parts, others one by one.
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
# Name of the second output of steps.
_NOTES = "notes"
_NOTE_FILE = "note.json"
# Pattern of a worker's error in Beam's message.
_ERROR = re.compile(r"^[ \t]*etcmodel\.[\w.]+: (.+)$", re.MULTILINE)
_STEP = re.compile(r" \[while running '.*$", re.DOTALL)


class Job(NamedTuple):
    """Settings sent to each worker.

    Attributes:
        task: name of the task.
        config: its preprocessing configuration, as a dict.
        split: what the records are for.
        paths: all files.
        vocabulary: name and content of the file.
        settings: of the tokenizer, as a dict; None for SentencePiece.
        skip: whether records that cannot be used are counted.
        max_record_bytes: see `files.limited`.
        keep: says whether a record belongs to the split; None if all do.
        part_bytes: size of the parts of files.
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
        """Returns how files are read; see `readers.records.Format`."""
        return registry.get(self.task).format(self.configuration())

    def preprocessor(self) -> type:
        """Returns the class of the task's `Preprocessor`."""
        return load(registry.get(self.task).preprocessor)

    def make_writer(self):
        """Makes the `ExampleMaker`, which builds a graph."""
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
        """Returns the positions of a file in `paths` and of a record in it."""
        return self.paths.index(source.path), source.index

    def report(self, error: RecordError) -> Any:
        """Returns the note of a bad record, or raises its error."""
        if not self.skip:
            raise error
        example = self.sort_key(error), str(error)
        return _noted(Note(bad={error.reason: 1}, examples=[example]))


class Note(NamedTuple):
    """Counts of a step; the notes of all steps are added.

    Attributes:
        records: numbers of records: written and left out.
        totals: counts of what the records hold.
        bad: reason -> number of records skipped for it.
        examples: the first of these: their places and messages.
        shards: name of a file -> its numbers of examples and of bytes.
    """

    records: Mapping[str, int] = {}  # noqa: RUF012
    totals: Mapping[str, int] = {}  # noqa: RUF012
    bad: Mapping[str, int] = {}  # noqa: RUF012
    examples: Sequence[tuple] = ()
    shards: Mapping[str, Mapping[str, int]] = {}  # noqa: RUF012


def _noted(note: Note):
    return beam.pvalue.TaggedOutput(_NOTES, note)


def _sum_notes(notes: Iterable[Note]) -> Note:
    """Adds notes up."""
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
    """Notes bad records."""

    def __init__(self, job: Job):
        super().__init__(job.skip)
        self._job = job
        self.notes = []

    def report(self, error: RecordError) -> None:
        """Notes a bad record; raises `error` unless bad ones are skipped."""
        self.notes.append(self._job.report(error))


class _WithFormat(beam.DoFn):
    """Base of the `DoFn`s that need the format of a job's files."""

    def __init__(self, job: Job):
        self._job = job
        self._format = None

    def setup(self):
        """Makes the format, once for many records."""
        self._format = self._job.format()


class _Read(_WithFormat):
    """Reads parts of files."""

    def process(self, part: files.Part):
        """Yields the records of a part, also those with an error."""
        job, read = self._job, self._format.read_part
        for checked in files.limited(
            job.max_record_bytes, read, job.paths, part, job.split
        ):
            if checked.record is None:
                yield job.report(checked.error)
            else:
                yield checked


class _Resolve(_WithFormat):
    """Merges or rejects records that share an id, and numbers the rest.

    The numbers distinguish the parts of a divided record.
    """

    def process(self, checked: Iterable[Checked]):
        """Yields the numbered records of one id."""
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
    """Makes the examples of batches of numbered records."""

    def __init__(self, job: Job):
        self._job = job
        self._shared = shared.Shared()
        self._writer = None

    def setup(self):
        """Builds the graph, once a process."""
        self._writer = self._shared.acquire(self._job.make_writer)

    def process(self, batch):
        """Yields serialized examples, or what is to be packed by its group."""
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
    """Yields the serialized examples of a group, as one machine packs them."""
    schema = job.preprocessor().SCHEMA
    packer = packing.ExamplePacker(schema, job.config)
    _, rows_of_records = group
    for _, rows in sorted(rows_of_records, key=lambda x: x[0]):
        for values in rows:
            yield from map(schema.serialize, packer.add(values))
    yield from map(schema.serialize, packer.flush())


def _describe_shard(path: str) -> Note:
    """Notes how large a written file is."""
    import tensorflow as tf

    kind = tfrecords.compression_type([path])
    count = sum(1 for _ in tf.data.TFRecordDataset(path, kind))
    size = tf.io.gfile.stat(path).length
    shard = {"examples": count, "bytes": size}
    return Note(shards={os.path.basename(path): shard})


def _to_json(note: Note) -> str:
    return json.dumps(note._asdict(), ensure_ascii=False)


class Preprocess(beam.PTransform):
    """Writes the TFRecords of a job into a directory, and a note about them.

    The directory must exist, and have the same path on all workers.
    """

    def __init__(self, job: Job, directory: str, num_shards: int):
        super().__init__(f"Preprocess {job.task} {job.split}")
        self._job, self._directory = job, directory
        self._num_shards = num_shards

    def expand(self, pipeline):
        """Returns the name of the note's file, when all is written."""
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
        """Reads the files in parts that are spread over the workers."""
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
        """Merges or rejects records that share an id; numbers all others."""
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
    """Reads the note of `Preprocess` in a directory, and removes its file."""
    import tensorflow as tf

    path = os.path.join(directory, _NOTE_FILE)
    with tf.io.gfile.GFile(path) as stream:
        note = Note(**json.loads(stream.read()))
    tf.io.gfile.remove(path)
    return note


def parse_options(
    runner: str, options: Sequence[str]
) -> pipeline_options.PipelineOptions:
    """Makes Beam's options; raises a `UserError` for an unknown one."""
    found = pipeline_options.PipelineOptions([f"--runner={runner}", *options])
    try:
        known = found.get_all_options()
        unknown = found.get_all_options(retain_unknown_options=True)
    except SystemExit:
        raise UserError(
            f"Invalid Beam options (see above): {' '.join(options)}."
        ) from None
    unknown = [f"--{name}" for name in unknown if name not in known]
    # A word is the value of the flag before it.
    for before, word in itertools.pairwise(["", *options]):
        if not word.startswith("-") and not re.fullmatch("-+[^=]+", before):
            unknown.append(word)
    if unknown:
        raise UserError(
            f"Neither preprocess nor Apache Beam has the flag {unknown[0]}. "
            "See `python -m etcmodel preprocess --task=TASK --help`, and "
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
    """Runs a job; an error of a record or file is raised as a `UserError`."""
    try:
        with beam.Pipeline(options=options) as pipeline:
            pipeline | Preprocess(job, directory, num_shards)
    except UserError as error:
        raise UserError(_STEP.sub("", str(error))) from error
    except Exception as error:
        found = _ERROR.findall(str(error))
        if found:
            raise UserError(_STEP.sub("", found[-1])) from error
        # A bug of this package, on a worker.
        if "Traceback" in str(error):
            raise
        raise UserError(
            f"Beam's runner failed: {str(error).rstrip('.')}. Nothing was "
            "written. If a worker was killed, or had too little memory, run "
            "the same command again."
        ) from error
    return pop_note(directory)
