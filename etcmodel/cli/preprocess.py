"""`preprocess`: an official data file becomes TFRecords with features."""

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import logging
import os
from collections.abc import Mapping
from typing import NamedTuple

from absl import flags

from etcmodel import extras
from etcmodel.cli import preprocess_notes
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.pipeline import metadata_files
from etcmodel.pipeline.atomic import output_directory
from etcmodel.pipeline.options import flag_fields
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import load
from etcmodel.readers import files
from etcmodel.tasks import registry
from etcmodel.training import runs

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
# With the first flag, unknown flags are values of the second.
PASSES_ON = ("runner", "beam_options")

# Flags about how text is prepared for the vocabulary.
_SETTINGS = ("lower_case", "strip_accents", "tokenize_chinese_chars")


@dataclasses.dataclass(kw_only=True)
class InputFlags:
    """What is read.

    Attributes:
        input: the data files in the task's format, plain or compressed:
            names, or patterns such as nq-train-*.jsonl.gz, with commas between.
        skip_bad_records: leave records out that cannot be used, and count them,
            instead of ending with an error.
        max_record_bytes: maximum size of a record: of a line of JSON, a row of
            a table, an element of a JSON array, or a document in a file of its
            own. A larger one is an error. 0 for no limit.
    """

    input: str = option(path="data")
    skip_bad_records: bool = False
    max_record_bytes: int = option(files.MAX_RECORD_BYTES, min_value=0)


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
        output_dir: the directory to make, on a disk or in a bucket.
        split: "train": every record must have its answer; what cannot be
            learned is left out. "dev", for validation: likewise, but nothing
            is left out. "predict": answers are neither needed nor stored.
        num_shards: number of TFRecord files.
        overwrite: replace the output directory if it exists.
        vocab_file: the vocabulary: a WordPiece vocab.txt with one token a line,
            or a SentencePiece model; by default that of --like. For WordPiece,
            tokenizer_config.json and tokenizer.json beside the vocabulary set
            the defaults of --lower_case, --strip_accents and
            --tokenize_chinese_chars.
        like: records that were preprocessed before, or a run of `train` that
            read them; their sizes, labels and vocabulary are the defaults.
        runner: run on an engine of Apache Beam: DirectRunner, FlinkRunner,
            SparkRunner, DataflowRunner and others. Its own options follow as
            they are, such as --direct_num_workers=4. Needs the extra "beam".
        beam_options: an option of Beam, such as
            --beam_options=--direct_num_workers=4; may be given several times.
        validation_fraction: share of the records that is kept for validation:
            the output has two directories, train and dev.
        seed: seed of the validation split.
    """

    task: str
    output_dir: str = option(path="new_directory_or_bucket")
    split: str = "train"
    num_shards: int = 16
    overwrite: bool = False
    vocab_file: str | None = option(None, path="file")
    like: str | None = option(None, path="records")
    runner: str | None = None
    beam_options: list[str] | None = option(None, several=True)
    validation_fraction: float | None = None
    seed: int = 0


def preprocessing_config(
    task, flag_values: flags.FlagValues, like: dict | None = None
):
    """Makes the preprocessing configuration that the flags describe.

    `like` is what was noted about other records, whose values are the defaults;
    they also tell what "auto" stands for.
    """
    noted = like["preprocessing_config"] if like else {}
    values = {
        field.name: flag_values[field.name].value
        for field in flag_fields(task.preprocessing_config_class)
        if field.name not in noted
        or (
            flag_values[field.name].present
            and flag_values[field.name].value != "auto"
        )
    }
    return task.make_preprocessing_config({**noted, **values})


def make_examples_maker(task, config, flag_values: flags.FlagValues):
    """Makes the `ExampleMaker`, with the flags' vocabulary."""
    from etcmodel.feature_utils.text import tokenizer_settings
    from etcmodel.pipeline import example_maker

    settings = tokenizer_settings.TokenizerSettings(
        **{name: flag_values[name].value for name in _SETTINGS}
    )
    return example_maker.of_task(task, config, flag_values.vocab_file, settings)


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
    """Raises a `UserError` if the task has no such split."""
    splits = task.dataset.FORMAT.splits
    if split not in splits:
        raise UserError(f"--split={split}: {task.name} has {', '.join(splits)}")


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


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command."""
    task = registry.get(flag_values.task)
    check_split(task, flag_values.split)
    _check_fraction(flag_values)
    like = _note_of_like(task, flag_values)
    config = preprocessing_config(task, flag_values, like)
    options = _beam_options(flag_values)
    most = flag_values.max_record_bytes
    read = functools.partial(files.limited, most, task.format(config).read)
    paths = files.find(flag_values.input)
    splits = {flag_values.split: None}
    if flag_values.validation_fraction is not None:
        splits = _choose_splits(task, flag_values, read, paths)
    if task.complete and not like:
        config = load(task.complete)(
            config,
            _kept(
                splits["train"],
                read(
                    paths,
                    "train",
                    BadRecords(flag_values.skip_bad_records),
                ),
            ),
        )
        # Labels that are known now may be written differently.
        read = functools.partial(files.limited, most, task.format(config).read)
    examples = make_examples_maker(task, config, flag_values)
    import tensorflow as tf

    with output_directory(
        flag_values.output_dir, overwrite=flag_values.overwrite
    ) as directory:
        for split, keep in splits.items():
            place = directory
            if len(splits) > 1:
                place = os.path.join(directory, split)
                tf.io.gfile.makedirs(place)
            arguments = place, paths, flag_values, examples, split, keep
            if options is None:
                written = _write_locally(read, *arguments)
            else:
                written = _write_with_beam(options, *arguments)
            _write_notes(written, place, paths, flag_values, examples, split)
    print_tokenizer(examples.preprocessor.tokenizer, flag_values)


def _check_fraction(flag_values: flags.FlagValues) -> None:
    fraction = flag_values.validation_fraction
    if fraction is None:
        return
    if not 0 < fraction < 1:
        raise UserError(
            f"--validation_fraction={fraction:g}: expected a number between 0 "
            "and 1, such as 0.1."
        )
    if flag_values.split != "train":
        raise UserError(
            "--validation_fraction makes both splits, train and dev: leave "
            "--split out."
        )


def _note_of_like(task, flag_values: flags.FlagValues) -> dict | None:
    """Reads what was noted about --like; its vocabulary is the default."""
    directory, split = flag_values.like, flag_values.split
    if not directory:
        if task.complete and split != "train":
            raise UserError(
                f"--split={split} needs --like=DIR, the records that are "
                f"trained on: they tell what {task.name} has to know, such as "
                "the labels."
            )
        if not flag_values.vocab_file:
            raise UserError("preprocess needs --vocab_file, or --like.")
        return None
    from etcmodel.pipeline import shards

    note = shards.read_note(directory) or runs.read_records(directory)
    if note is None:
        raise UserError(
            f"--like={directory}: it has no {shards.METADATA_FILE}. Give the "
            "--output_dir of an earlier `preprocess`, or the --model_dir of "
            "`train`."
        )
    if note["task"] != task.name:
        raise UserError(
            f"--like={directory}: its records are those of the task "
            f"{note['task']!r}, not of {task.name!r}."
        )
    if not flag_values.vocab_file:
        flag_values.vocab_file = os.path.join(directory, note["vocab_file"])
    return note


def validation_ids(records, dataset, fraction: float, seed: int) -> set[str]:
    """Chooses a fraction of records for validation, by their ids.

    Stratifies by the dataset's `stratum`; with too few records for that, draws
    at random and prints a note. The only record of a stratum stays in the
    training data.
    """
    from sklearn import model_selection

    stratum = getattr(dataset, "stratum", lambda record: None)
    strata = {record.id: stratum(record) for record in records}
    counts = collections.Counter(strata.values())
    ids = [x for x, y in strata.items() if y is None or counts[y] > 1]
    found = [strata[x] for x in ids]
    number = round(fraction * len(strata))
    if not 0 < number < len(ids):
        raise UserError(
            f"--validation_fraction={fraction:g} of {len(strata)} records "
            f"leaves {number} to validate with and {len(strata) - number} to "
            "learn from."
        )
    has_strata = None not in found
    is_even = min(number, len(ids) - number) >= len(set(found))
    if has_strata and not is_even:
        print(
            f"Note: the validation split is not stratified: {number} of "
            f"{len(ids)} records are too few for {len(set(found))} labels."
        )
    _, chosen = model_selection.train_test_split(
        ids,
        test_size=number,
        random_state=seed,
        stratify=found if has_strata and is_even else None,
    )
    return set(chosen)


def _choose_splits(task, flag_values: flags.FlagValues, read, paths) -> dict:
    """Returns split, train and dev -> what tells its records."""
    records = read(paths, "train", BadRecords(flag_values.skip_bad_records))
    chosen = validation_ids(
        records,
        task.dataset,
        flag_values.validation_fraction,
        flag_values.seed,
    )
    return {
        split: functools.partial(_is_of_split, chosen, split)
        for split in ("train", "dev")
    }


def _is_of_split(chosen: set[str], split: str, record) -> bool:
    return (record.id in chosen) == (split == "dev")


def _kept(keep, records):
    return records if keep is None else filter(keep, records)


class _Written(NamedTuple):
    """What was written.

    Attributes:
        records: numbers of records: written and left out.
        totals: counts of what the records hold.
        bad_records: those that were skipped.
        shards: name of a file -> its numbers of examples and of bytes.
    """

    records: collections.Counter[str]
    totals: Mapping[str, int]
    bad_records: BadRecords
    shards: Mapping[str, Mapping[str, int]]


def _write_locally(
    read, directory, paths, flag_values, examples, split, keep
) -> _Written:
    """Writes the TFRecords of a split into a directory."""
    from etcmodel.pipeline import tfrecords

    bad_records = BadRecords(flag_values.skip_bad_records)

    def read_split(*args):
        return _kept(keep, read(*args))

    with tfrecords.ShardedWriter(
        directory, split, flag_values.num_shards
    ) as writer:
        records, totals = _write_examples(
            examples, read_split, paths, split, bad_records, writer
        )
    return _Written(records, totals, bad_records, writer.describe())


def _distributed():
    """Imports Beam without its warnings of clouds that are not installed."""
    extras.require_extra("beam")
    logging.disable(logging.WARNING)
    try:
        from etcmodel.cli import distributed
    finally:
        logging.disable(logging.NOTSET)
    return distributed


def _beam_options(flag_values: flags.FlagValues):
    """Returns the options of Beam, or None without a --runner."""
    if flag_values.runner is None:
        if flag_values.beam_options:
            raise UserError("--beam_options needs --runner.")
        return None
    return _distributed().parse_options(
        flag_values.runner, flag_values.beam_options or []
    )


def _write_with_beam(
    options, directory, paths, flag_values, examples, split, keep
) -> _Written:
    """Does the same as `_write_locally` on the workers of a runner."""
    import tensorflow as tf

    distributed = _distributed()
    vocab_file = flag_values.vocab_file
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
        flag_values.skip_bad_records,
        flag_values.max_record_bytes,
        keep,
    )
    note = distributed.run(job, directory, flag_values.num_shards, options)
    bad_records = BadRecords(flag_values.skip_bad_records)
    bad_records.counts.update(note.bad)
    bad_records.examples = [message for _, message in note.examples]
    records = collections.Counter(note.records)
    return _Written(records, note.totals, bad_records, note.shards)


def _write_notes(
    written, directory, paths, flag_values, examples, split
) -> None:
    """Writes all other files of a split into a directory; prints counts."""
    from etcmodel.pipeline import shards as shards_lib
    from etcmodel.pipeline import tfrecords

    task, config = examples.spec, examples.preprocessor.config
    records, totals, bad_records, shards = written
    count = sum(shard["examples"] for shard in shards.values())
    if not count:
        raise _nothing_written(flag_values.input, totals, bad_records)
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
        directory, examples.preprocessor.tokenizer, flag_values.vocab_file
    )
    metadata = {
        "task": task.name,
        "format": tfrecords.FORMAT,
        "split": split,
        # How files were read does not change what is stored.
        "preprocessing_config": {
            name: value
            for name, value in dataclasses.asdict(config).items()
            if name not in task.reading
        },
        **vocabulary,
        "num_examples": count,
        "shards": shards,
    }
    without_query = totals.get("records_without_query")
    if without_query is not None:
        metadata["has_queries"] = without_query == 0
    metadata_files.write(
        os.path.join(directory, tfrecords.METADATA_FILE), metadata
    )
    if bad_records.total:
        print(bad_records.summary())
    place = flag_values.output_dir
    if flag_values.validation_fraction is not None:
        place = os.path.join(place, split)
    print(
        f"Wrote {records['written']} of {stats['records_read']} records to "
        f"{place}."
    )
    for name, count in sorted(totals.items()):
        print(f"  {count:10d}  {name.replace('_', ' ')}")
    for name, value in summary.items():
        print(f"  {value:10.2f}  {name.replace('_', ' ')}")
    like = flag_values.like
    noted = like and (shards_lib.read_note(like) or runs.read_records(like))
    had_queries = bool(noted and noted.get("has_queries"))
    for note in preprocess_notes.make_notes(totals, had_queries):
        print(note)


def _write_examples(examples, read, paths, split, bad_records, writer):
    """Writes all records; returns counts of records, and of their content."""
    from etcmodel.cli.progress import file_progress
    from etcmodel.pipeline import packing

    records, totals = collections.Counter(), collections.Counter()
    packer, group = examples.make_packer(), None
    with file_progress(paths, "Preprocessing") as progress:
        source = read(paths, split, bad_records, progress.at)
        for made in make_all_examples(examples, source, split, bad_records):
            for record in made:
                # Only what is in one group is packed together.
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
