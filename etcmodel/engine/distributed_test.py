"""Tests that Beam writes the same examples as one machine, reordered."""

import collections
import itertools
import json
import os
import shutil
import signal
from unittest import mock

import apache_beam as beam
import tensorflow as tf
from absl.testing import parameterized
from apache_beam.options import pipeline_options
from apache_beam.runners.portability import local_job_service

from etcmodel.engine import distributed
from etcmodel.errors import UserError
from etcmodel.pipeline import shards
from etcmodel.pipeline import tfrecords
from testing import own_documents
from testing import tasks
from testing.helpers import real_data_path
from testing.tasks import CommandTestCase
from testing.tasks import run_cli

_TWO_WORKERS = (
    "--direct_running_mode=multi_processing",
    "--direct_num_workers=2",
)
_SMALL = ("--long_length=256", "--global_length=64")
_SEGMENTS = ("--block_length=64", "--num_blocks_per_example=16")
_QUESTIONS = (*_SEGMENTS, "--max_question_length=20", "--block_overlap=16")
# Task -> file of real records, number of records to use, and flags for sizes.
_REAL = {
    "wikihop": ("wikihop/train_22.json", 8, _SMALL),
    "hotpotqa": ("hotpotqa/dev_95.json", 8, _SMALL),
    "nq": ("nq/nq-train-01.jsonl.gz", None, (*_SMALL, "--stride=128")),
    "openkp": ("openkp/records_2.jsonl", None, _SMALL),
    "classify": ("authors/dev.jsonl", 30, _SMALL),
    "select": ("hotpotqa/dev_95.json", 8, _SMALL),
    "answer": ("squad/train.json", 1, _SMALL),
    "pretrain": ("wikitext/wiki.valid.raw", 300, _SMALL),
    "read_twice_pretrain": ("wikitext/wiki.valid.raw", 300, _SEGMENTS),
    "read_twice_hotpotqa": (
        "hotpotqa/dev_95.json",
        8,
        _QUESTIONS,
    ),
    "read_twice_triviaqa": (
        "triviaqa/qa/wikipedia-train.json",
        None,
        _QUESTIONS,
    ),
    "read_twice_narrativeqa": ("narrativeqa/qaps.csv", 3, _QUESTIONS),
}


def _kill_a_worker(record):
    os.kill(os.getpid(), signal.SIGKILL)


class DistributedTest(CommandTestCase, parameterized.TestCase):
    def _write_input(self, path, number):
        """Copies the first records of a file."""
        path = real_data_path(path)
        if number is None:
            return path
        folder, name = os.path.split(path)
        # NarrativeQA's file refers to other files in its directory.
        if name == "qaps.csv":
            for other in ("documents.csv", "stories"):
                source = os.path.join(folder, other)
                # Copies, not links: the folder is deleted after the test.
                copy = shutil.copytree if other == "stories" else shutil.copy
                copy(source, self.path(other))
                os.chmod(self.path(other), 0o755)
        copy = self.path(f"{number}-{name}")
        with open(path, encoding="utf-8") as stream:
            if path.endswith(".json"):
                content = json.load(stream)
                if isinstance(content, dict):
                    content["data"] = content["data"][:number]
                else:
                    content = content[:number]
                text = json.dumps(content)
            else:
                text = "".join(itertools.islice(stream, number))
        with open(copy, "w", encoding="utf-8") as stream:
            stream.write(text)
        return copy

    def _job(self, *arguments):
        """Returns the job that `preprocess` would run with Beam."""
        with mock.patch.object(
            distributed, "run", side_effect=UserError("stopped")
        ) as run:
            _, _, err = run_cli(*arguments, "--runner=DirectRunner")
        self.assertIn("stopped", err)
        return run.call_args.args[0]

    def _start_job_service(self):
        """Starts Beam's job service; returns the flags that select it."""
        service = local_job_service.LocalJobServicer()
        port = service.start_grpc_server()
        self.addCleanup(service.stop)
        return (
            *("--runner=PortableRunner", f"--job_endpoint=localhost:{port}"),
            "--environment_type=LOOPBACK",
        )

    def _stored(self, directory):
        paths = tfrecords.find_files(directory)
        dataset = tf.data.TFRecordDataset(paths, "GZIP")
        return collections.Counter(dataset.as_numpy_iterator())

    def test_all_tasks_with_two_workers(self):
        vocab = real_data_path("vocab/bert_uncased_vocab.txt")
        jobs = {}
        for task, (path, number, sizes) in _REAL.items():
            arguments = (
                *("preprocess", f"--task={task}", f"--vocab_file={vocab}"),
                *(f"--input={self._write_input(path, number)}", *sizes),
                *("--num_shards=3", f"--output_dir={self.path(task)}"),
            )
            jobs[task] = self._job(*arguments)._replace(part_bytes=10_000)
            with tasks.without_tracing():
                self.assert_succeeds(run_cli(*arguments))
        options = pipeline_options.PipelineOptions([*_TWO_WORKERS])
        with beam.Pipeline("DirectRunner", options) as pipeline:
            for task, job in jobs.items():
                directory = self.path(f"{task}_by_beam")
                os.makedirs(directory)
                pipeline | distributed.Preprocess(job, directory, 3)
        for task in jobs:
            directory = self.path(f"{task}_by_beam")
            note = distributed.pop_note(directory)
            stored = self._stored(directory)
            self.assertEqual(self._stored(self.path(task)), stored, task)
            stats = tasks.read_json(self.path(task, "stats.json"))
            self.assertEqual(stats, {**stats, **note.totals})
            self.assertEqual(stats["records_written"], note.records["written"])
            self.assertEqual(
                {
                    name: os.path.getsize(os.path.join(directory, name))
                    for name in os.listdir(directory)
                },
                {name: x["bytes"] for name, x in note.shards.items()},
            )
            self.assertEqual(
                stored.total(),
                sum(x["examples"] for x in note.shards.values()),
            )

    def _arguments(self, records, *more):
        path, vocab = own_documents.write_small_labels(self.directory, 12)
        with open(path, encoding="utf-8") as stream:
            lines = [json.loads(line) for line in stream]
        for number, change in records.items():
            lines[number] |= change
        with open(path, "w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(x) + "\n" for x in lines)
        return (
            *("preprocess", "--task=classify", f"--input={path}"),
            *(f"--vocab_file={vocab}", *own_documents.SIZES, *more),
        )

    def test_bad_records(self):
        """Bad records and repeated ids are reported as on one machine."""
        arguments = self._arguments(
            {4: {"text": True}, 7: {"id": "same"}, 9: {"id": "same"}},
            "--validation_fraction=0.3",
        )
        runner = self._start_job_service()
        for name, flags in (("local", ()), ("beam", runner)):
            out = f"--output_dir={self.path(name)}", "--skip_bad_records"
            self.assert_succeeds(run_cli(*arguments, *out, *flags))
        for split in ("train", "dev"):
            local, other = (
                tasks.read_json(self.path(name, split, "stats.json"))
                for name in ("local", "beam")
            )
            # Of two splits, only the training split counts them.
            dropped = 2 if split == "train" else 0
            self.assertEqual(dropped, local["records_dropped"])
            self.assertEqual(local, other)
            self.assertEqual(
                self._stored(self.path("local", split)),
                self._stored(self.path("beam", split)),
            )
            local, other = (
                shards.read_note(self.path(name, split))
                for name in ("local", "beam")
            )
            self.assertEqual({*local.pop("shards")}, {*other.pop("shards")})
            self.assertEqual(local, other)
        # `like` has the labels, so only the worker finds the error.
        new = f"--output_dir={self.path('new')}"
        like = f"--like={self.path('local', 'train')}"
        message = (
            r"^Error: .*rows\.jsonl, line 5, record 4 .*'text': got True, "
            r"expected.*--skip_bad_records\.\n$"
        )
        arguments = (*arguments[:-1], new, like)
        self.assert_fails(run_cli(*arguments, "--runner=DirectRunner"), message)
        self.assert_fails(
            run_cli(
                *arguments, "--runner=DirectRunner", "--max_record_bytes=20"
            ),
            r"rows\.jsonl, line 1: the record has more than 20 bytes",
        )
        # The worker's log precedes the error.
        code, out, err = run_cli(*arguments, *runner)
        self.assertEqual((1, ""), (code, out))
        self.assertRegex(err.splitlines(keepends=True)[-1], message)
        self.assertFalse(os.path.exists(self.path("new")))

    def test_a_worker_is_killed(self):
        job = self._job(
            *self._arguments({}), f"--output_dir={self.path('new')}"
        )
        options = distributed.parse_options("DirectRunner", _TWO_WORKERS)
        os.makedirs(self.path("out"))
        with self.assertRaisesRegex(
            UserError, "Beam's runner failed.*same command again"
        ):
            distributed.run(
                *(job._replace(keep=_kill_a_worker), self.path("out")),
                *(2, options),
            )

    def test_options(self):
        for flags, unknown in (
            (["--direct_num_worker=2"], "--direct_num_worker"),
            (["--num_shard", "3"], "--num_shard"),
            ([*_TWO_WORKERS, "x"], "x"),
            (["--direct_num_workers", "2", "x"], "x"),
        ):
            with self.assertRaisesRegex(UserError, f"the flag {unknown}. See"):
                distributed.parse_options("DirectRunner", flags)
        with self.assertRaisesRegex(UserError, "--direct_num_workers=x;"):
            distributed.parse_options(
                "DirectRunner", ["--direct_num_workers=x"]
            )
        with self.assertRaisesRegex(UserError, "--runner=FlnkRunner: "):
            distributed.parse_options("FlnkRunner", [])
        spaced = ["--direct_num_workers", "2"]
        found = distributed.parse_options("DirectRunner", spaced)
        found = found.view_as(pipeline_options.DirectOptions)
        self.assertEqual(2, found.direct_num_workers)


if __name__ == "__main__":
    tf.test.main()
