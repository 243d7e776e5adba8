import json
import os
import types
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import models
from etcmodel.engine import run_options
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.pipeline import tfrecords
from etcmodel.tasks import registry
from etcmodel.training import provenance
from etcmodel.training import runs
from testing.flags import parse_options
from testing.tasks import CommandTestCase
from testing.tasks import write_json
from testing.tasks import write_run
from testing.tasks import write_test_vocab

_NOT_A_RUN = "run: it has no etcmodel.json. Give the `model_dir` of `train`"


class _RunTestCase(CommandTestCase):
    def setUp(self):
        super().setUp()
        self.model_dir = self.path("run")
        os.makedirs(self.model_dir)

    def save(self, *names, step=1):
        """Saves a checkpoint that has a step, but not a model."""
        checkpoint = tf.train.Checkpoint(
            global_step=tf.Variable(step, dtype=tf.int64)
        )
        return checkpoint.save(self.path("run", *names))


class ValidationsTest(_RunTestCase):
    def test_run_that_resumed_at_an_earlier_step(self):
        self.assertIsNone(runs.read_validations(self.model_dir))
        for step, value in ((10, 0.5), (20, 0.7), (30, 0.6), (20, 0.8)):
            metrics = {"f1": value, "best_f1": 1.0, "curve": np.ones(3)}
            found = runs.save_validation(metrics, step, self.model_dir)
        expected = {10: {"f1": 0.5}, 20: {"f1": 0.8}}
        self.assertEqual(expected, found)
        self.assertEqual(expected, runs.read_validations(self.model_dir))
        path = os.path.join(self.model_dir, "validations.json")
        write_json(path, {"ten": {}})
        with self.assertRaisesRegex(
            UserError, f"{path} has the entry 'ten': .*Remove it"
        ):
            runs.read_validations(self.model_dir)


class FindCheckpointTest(_RunTestCase):
    def test_best_before_last(self):
        find = runs.find_checkpoint
        first, last = self.save("ckpt"), self.save("later")
        self.assertNotEqual(first, last)
        self.assertEqual(last, find(self.model_dir, None))
        with self.assertRaisesRegex(UserError, "checkpoint best"):
            find(self.model_dir, "best")
        best = self.save("best_ckpt", "ckpt")
        self.assertEqual(best, find(self.model_dir, None))
        self.assertEqual(best, find(self.model_dir, "best"))
        self.assertEqual(last, find(self.model_dir, "last"))
        # `choice` may be the path of a checkpoint or of its directory.
        self.assertEqual(first, find("/no/such", first))
        self.assertEqual(best, find("/no/such", os.path.dirname(best)))

    @parameterized.parameters(None, "best", "last", "/no/such/ckpt-1")
    def test_none(self, choice):
        with self.assertRaisesRegex(
            UserError,
            f"No checkpoint.*{self.model_dir}.*{choice or 'best or last'}.*"
            "Run `train` first",
        ):
            runs.find_checkpoint(self.model_dir, choice)


class NoteTest(_RunTestCase):
    def _use(self, *arguments):
        """Returns the experiment and the configuration files."""
        experiment, options = run_options.use_saved_params(
            parse_options(
                run_options.TrainerOptions,
                f"--model_dir={self.model_dir}",
                *arguments,
            ),
            Reporter(),
        )
        return experiment, options.config_file

    def test_saves_files_for_export(self):
        vocab_file = write_test_vocab(self.directory, "rome")
        records = {
            "preprocessing_config": {"long_length": 8},
            "vocab_file": "vocab.txt",
            "vocab_size": 11,
            "vocab_fingerprint": tfrecords.fingerprint(vocab_file),
            "tokenizer": {"lower_case": True, "strip_accents": False},
        }
        software = {"versions": {"etcmodel": "1"}}
        self.enterContext(
            mock.patch.object(provenance, "describe", return_value=software)
        )
        note = {
            "task": "wikihop",
            "experiment": "etc/wikihop_flat",
            **software,
        }
        config = models.EtcConfig.from_preset("tiny", vocab_size=11)
        for metadata, expected in (
            # The records may lack metadata.
            (None, note),
            (
                {"directory": self.directory, "task": "wikihop", **records},
                {**note, "records": records},
            ),
        ):
            model_dir = os.path.join(self.model_dir, "new")
            runs.save(
                types.SimpleNamespace(
                    metadata=metadata,
                    describe_encoder=lambda model: (config, {"model": model}),
                ),
                "its model",
                registry.get("wikihop"),
                "etc/wikihop_flat",
                model_dir,
            )
            self.assertEqual(expected, runs.read(model_dir))
        # `models.run_files` reads these files in Python.
        self.assertEqual(config, models.EtcConfig.from_run(model_dir))
        self.assertEqual(
            {"model": "its model"}, models.encoder_options(model_dir)
        )
        with open(os.path.join(model_dir, "vocab.txt")) as stream:
            self.assertEndsWith(stream.read(), "rome\n")
        # The tokenizer settings are stored beside the vocabulary.
        with open(os.path.join(model_dir, "tokenizer_config.json")) as stream:
            self.assertEqual(
                {"do_lower_case": True, "strip_accents": False},
                json.load(stream),
            )

    def test_files_are_replaced_atomically(self):
        vocab_file = write_test_vocab(self.directory, "rome")
        metadata = {
            "directory": self.directory,
            "preprocessing_config": {},
            "vocab_file": "vocab.txt",
            "vocab_size": 11,
            "vocab_fingerprint": tfrecords.fingerprint(vocab_file),
            "tokenizer": {"lower_case": True},
        }
        task = types.SimpleNamespace(metadata=metadata)

        def copy(source, target, overwrite=False):
            write(None, open(target, "w"))

        def write(content, stream, **kwargs):
            with stream:
                stream.write("{")
            raise OSError("no space left")

        for name, module, function in (
            ("vocab.txt", tf.io.gfile, copy),
            ("tokenizer_config.json", json, write),
        ):
            path = os.path.join(self.model_dir, name)
            with open(path, "w") as stream:
                stream.write("before")
            with (
                mock.patch.object(
                    module, "copy" if function is copy else "dump", function
                ),
                self.assertRaisesRegex(OSError, "no space left"),
            ):
                runs.save(
                    *(task, None, registry.get("wikihop")),
                    *("etc/wikihop", self.model_dir),
                )
            with open(path) as stream:
                self.assertEqual("before", stream.read())

    def test_own_configuration_comes_first(self):
        write_run(self.model_dir, params={})
        own = os.path.join(self.model_dir, "params.yaml")
        for arguments in ([], ["--experiment=etc/wikihop"]):
            self.assertEqual(
                ("etc/wikihop", [own, "more.yaml"]),
                self._use("--config_file=more.yaml", *arguments),
            )
        # A run's configuration does not override another experiment.
        flat = "etc/wikihop_flat"
        self.assertEqual((flat, None), self._use(f"--experiment={flat}"))
        os.remove(own)
        with self.assertRaisesRegex(UserError, "has no params.yaml"):
            self._use()

    def test_without_metadata_the_experiment_must_be_given(self):
        name = "etc/wikihop"
        self.assertEqual((name, None), self._use(f"--experiment={name}"))
        with self.assertRaisesRegex(UserError, _NOT_A_RUN):
            self._use()


class SameRunTest(_RunTestCase):
    """Tests that a run resumes only with the same model and records."""

    records = {
        "preprocessing_config": {"long_length": 8},
        "vocab_fingerprint": "f",
        "tokenizer": {"lower_case": True},
    }
    model = {
        "encoder": {"preset": "tiny", "local_radius": 3},
        "use_links": True,
    }

    def _check(self, task="wikihop", saved=True, records=None, **model):
        note = {
            "task": "wikihop",
            "experiment": "etc/wikihop",
            "records": self.records,
        }
        write_run(self.model_dir, note, {"task": {"model": self.model}})
        if saved:
            self.save("ckpt")
        params = types.SimpleNamespace(
            task=types.SimpleNamespace(
                model=types.SimpleNamespace(
                    as_dict=lambda: {**self.model, **model}
                )
            )
        )
        records = {**self.records, **(records or {})}
        runs.check_same(params, records, registry.get(task), self.model_dir)

    def test_same_run(self):
        # A directory without checkpoints matches any run.
        self._check(saved=False, use_links=False)
        self._check()

    @parameterized.parameters(
        ({"task": "nq"}, "task is nq, but was wikihop"),
        ({"use_links": False}, "task.model.use_links is False, but was True"),
        (
            {"encoder": {"preset": "tiny", "local_radius": 4}},
            "task.model.encoder.local_radius is 4, but was 3",
        ),
        (
            {"records": {"vocab_fingerprint": "g"}},
            "vocab_fingerprint is g, but was f",
        ),
        (
            {"records": {"tokenizer": {"lower_case": False}}},
            "tokenizer is .*False.*, but was .*True",
        ),
        (
            {"records": {"preprocessing_config": {"long_length": 9}}},
            "preprocessing_config is .*9.*, but was .*8",
        ),
    )
    def test_another_run(self, other, message):
        with self.assertRaisesRegex(
            UserError, f"run of another model: .*{message}.*Choose another `mo"
        ):
            self._check(**other)

    def test_records_to_evaluate(self):
        records = {**self.records, "directory": "dev"}

        def check(records, **lengths):
            model = types.SimpleNamespace(**lengths)
            runs.check_records(self.model_dir, records, model)

        # Runs of the Model Garden's own programs lack metadata.
        check(records)
        note = {"task": "nq", "experiment": "etc/nq", "records": self.records}
        write_run(self.model_dir, note)
        check(records)
        check(None)
        longer = {**records, "preprocessing_config": {"long_length": 16}}
        check(longer, long_length=16)
        for other, lengths, key in (
            (
                {**records, "preprocessing_config": {}},
                {},
                "preprocessing_config",
            ),
            ({**records, "vocab_fingerprint": "g"}, {}, "vocab_fingerprint"),
            ({**records, "tokenizer": {}}, {}, "tokenizer"),
            (longer, {"long_length": 0}, "preprocessing_config.*long_length=N"),
            (longer, {"global_length": 16}, "preprocessing_config"),
            (
                {
                    **records,
                    "preprocessing_config": {"long_length": 16, "stride": 3},
                },
                {"long_length": 16},
                "preprocessing_config",
            ),
        ):
            with self.assertRaisesRegex(UserError, f"dev was.*{key}"):
                check(other, **lengths)


class TunedTest(_RunTestCase):
    option = "supporting_fact_threshold"

    def _use(self, step, value=None):
        params = types.SimpleNamespace(**{self.option: value})
        runs.use_tuned(
            registry.get("hotpotqa"),
            params,
            self.save(f"ckpt-{step}", step=step),
            self.model_dir,
        )
        return getattr(params, self.option)

    def test_the_last_validation_before_a_checkpoint_counts(self):
        self.assertEqual(0.5, self._use(100))
        for step, value in ((200, 0.3), (1000, 0.8)):
            runs.save_tuned(
                registry.get("hotpotqa"),
                {self.option: value, "f1": 0.1},
                step,
                self.model_dir,
            )
        for step, expected in (
            (100, 0.5),
            (200, 0.3),
            (999, 0.3),
            (1000, 0.8),
            (5000, 0.8),
        ):
            self.assertEqual(expected, self._use(step))
        # A value that the user sets is kept.
        self.assertEqual(0.0, self._use(1000, 0.0))

    def test_run_initialized_from_another(self):
        """Keeps the other run's threshold until the first validation."""
        spec, second = registry.get("hotpotqa"), self.path("second")
        note = {"task": "hotpotqa", "experiment": "etc/hotpotqa"}
        write_run(self.model_dir, note)
        os.makedirs(second)
        checkpoint = self.save("ckpt-200", step=200)
        runs.keep_tuned(spec, checkpoint, second)
        self.assertEmpty(os.listdir(second))
        for step, value in ((200, 0.3), (300, 0.8)):
            runs.save_tuned(spec, {self.option: value}, step, self.model_dir)
        runs.keep_tuned(spec, checkpoint, second)
        runs.save_tuned(spec, {self.option: 0.6}, 50, second)
        self.model_dir = second
        self.assertEqual(0.3, self._use(10))
        self.assertEqual(0.6, self._use(50))
        # The threshold is not copied for another task, or without a checkpoint.
        for name, start in (("select", checkpoint), ("hotpotqa", "")):
            runs.keep_tuned(registry.get(name), start, self.directory)
        self.assertFalse(os.path.exists(self.path(runs.TUNED_FILE)))

    def test_task_without_tuned_option(self):
        spec = registry.get("wikihop")
        runs.save_tuned(spec, {"accuracy": 1.0}, 5, self.model_dir)
        runs.use_tuned(spec, types.SimpleNamespace(), "none", self.model_dir)
        self.assertEmpty(os.listdir(self.model_dir))


if __name__ == "__main__":
    tf.test.main()
