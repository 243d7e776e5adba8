"""Tests commands on a run with damaged or missing files.

The error names the file and says what to do. All commands fail before they
build a model, so no test trains.
"""

import io
import itertools
import os
import re
import shutil
from unittest import mock

import tensorflow as tf
import yaml
from absl.testing import parameterized
from official.core import exp_factory

from etcmodel.engine import run_options
from etcmodel.engine import runner as training
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.estimators import sources
from etcmodel.pipeline import tfrecords
from etcmodel.tasks import registry
from etcmodel.training import lifted
from etcmodel.training import run_directory
from etcmodel.training import runs
from testing.models import small_records
from testing.tasks import CommandTestCase
from testing.tasks import read_json
from testing.tasks import run_cli
from testing.tasks import write_json
from testing.tasks import write_run

_COMMANDS = ("train", "evaluate", "export")
# Contents of files after a full disk or an interrupted copy.
_DAMAGE = (
    *(b"", b"\xff\xfe\x00\x01", b'{"task": ', b"[1, 2]"),
    b'{"a":' * 100_000,
)


class DamagedRunTest(CommandTestCase):
    def setUp(self):
        super().setUp()
        self.records = self.path("records")
        shutil.copytree(small_records(), self.records)
        self.model_dir = self.path("run")
        os.mkdir(self.model_dir)
        registry.register_experiments("wikihop")
        params = exp_factory.get_exp_config("etc/wikihop")
        params.task.model.encoder.preset = "tiny"
        self.note = read_json(
            os.path.join(self.records, "preprocessing_config.json")
        )
        names = (
            "preprocessing_config",
            "vocab_file",
            "vocab_size",
            "vocab_fingerprint",
        )
        note = {"task": "wikihop", "experiment": "etc/wikihop"}
        note["records"] = {name: self.note[name] for name in names}
        write_run(self.model_dir, note, params.as_dict())
        shutil.copy(os.path.join(self.records, "vocab.txt"), self.model_dir)
        step = tf.Variable(1, dtype=tf.int64)
        checkpoint = tf.train.Checkpoint(global_step=step)
        checkpoint.save(self.path("run", "ckpt"))

    def _command(self, name, *more):
        """Runs a command on the run; building a model raises an error."""
        flags = {
            "train": [
                "--experiment=etc/wikihop",
                f"--train_data={self.records}",
                "--preset=tiny",
            ],
            "evaluate": [f"--validation_data={self.records}"],
            "export": [f"--output_dir={self.path('exported')}"],
        }
        arguments = [f"--model_dir={self.model_dir}", *flags[name], *more]
        # A command that passes all checks fails this test.
        with mock.patch.object(
            training, "make_runner", side_effect=AssertionError("went on")
        ):
            return run_cli(name, *arguments)

    def _fails(self, result, *messages):
        """Checks that a command fails with an error of one line."""
        code, _, err = result
        self.assert_fails((code, "", err), *messages)
        self.assertEqual(1, err.count("\n"), err)

    def _damage(self, content, *names):
        with open(self.path(*names), "wb") as stream:
            stream.write(content)

    @parameterized.parameters(
        ("run/etcmodel.json", "Copy it", _COMMANDS),
        ("run/params.yaml", "Copy it", _COMMANDS),
        ("records/preprocessing_config.json", "preprocess", _COMMANDS[:2]),
    )
    def test_damaged_files(self, name, advice, commands):
        for command, content in itertools.product(commands, _DAMAGE):
            with self.subTest(f"{command} {content}"):
                self._damage(content, name)
                self._fails(
                    self._command(command),
                    f"^Error: {re.escape(self.path(name))}: .*; expected a "
                    f"(JSON|YAML) object.*{advice}",
                )

    @parameterized.parameters(
        ("records", "preprocessing_config.json", ("train", "evaluate")),
        ("run", "etcmodel.json", _COMMANDS),
    )
    def test_vocabulary_in_another_directory(self, folder, name, commands):
        """Metadata must not make `train` copy a file outside the run."""
        os.mkdir(self.path("victim"))
        shutil.copy(
            os.path.join(self.records, "vocab.txt"), self.path("evil.txt")
        )
        path = self.path(folder, name)
        note = read_json(path)
        note.pop("checksum", None)
        for vocab_file in ("../evil.txt", self.path("evil.txt"), "..", 3):
            (note if folder == "records" else note["records"])["vocab_file"] = (
                vocab_file
            )
            write_json(path, note)
            for command in commands:
                self._fails(
                    self._command(command),
                    f"{path}: '(records.)?vocab_file' is .*not the name of a "
                    "file in its directory",
                )
        if folder == "run":
            for content in (note, {**note, **note["records"]}):
                write_json(self.path("run", "lift.json"), content)
                with self.assertRaisesRegex(UserError, "vocab_file"):
                    sources.vocabulary_beside(self.model_dir)

    def test_checkpoints_in_another_directory(self):
        """The trainer must not delete old checkpoints outside the run."""
        victim = self.path("victim", "ckpt-1")
        tf.train.Checkpoint().write(victim)
        with open(self.path("run", "checkpoint"), "w") as stream:
            for name in ("model", "all_model"):
                paths = "path" if name == "model" else "paths"
                stream.write(f'{name}_checkpoint_{paths}: "../victim/ckpt-1"\n')
        self.assertEqual(
            self.path("run", "ckpt-1"),
            runs.find_checkpoint(self.model_dir, None),
        )
        out = io.StringIO()
        run_directory.prepare(self.model_dir, out)
        self.assertRegex(out.getvalue(), "checkpoint is missing or damaged")
        self.assertEqual(
            [self.path("run", "ckpt-1")],
            list(
                tf.train.get_checkpoint_state(
                    self.model_dir
                ).all_model_checkpoint_paths
            ),
        )
        os.rename(self.path("run", "checkpoint"), self.path("kept"))
        for name in tf.io.gfile.glob(self.path("run", "ckpt-1.*")):
            os.remove(name)
        with open(self.path("run", "checkpoint"), "w") as stream:
            stream.write(f'model_checkpoint_path: "{victim}"\n')
        with self.assertRaisesRegex(UserError, "names checkpoints in another"):
            run_directory.prepare(self.model_dir)

    @parameterized.parameters("etcmodel.json", "params.yaml")
    def test_missing_metadata_or_configuration(self, name):
        os.remove(self.path("run", name))
        for command in _COMMANDS:
            self._fails(self._command(command), f"{self.model_dir} .*no {name}")

    def test_truncated_configuration(self):
        """A file truncated at the end of a line is still valid YAML."""
        path = self.path("run", "params.yaml")
        with open(path) as stream:
            lines = yaml.dump(yaml.safe_load(stream)).splitlines(True)
        with open(path, "w") as stream:
            stream.writelines(lines[:-10])
        for command in _COMMANDS:
            self._fails(self._command(command), f"{path}: .* is missing")

    def test_experiment_replaces_missing_metadata(self):
        """Then a note says which checks are left out."""
        os.remove(self.path("run", "etcmodel.json"))
        with self.assertRaisesRegex(AssertionError, "went on"):
            self._command("evaluate", "--experiment=etc/wikihop")
        output = io.StringIO()
        run_options.use_saved_params(
            run_options.TrainerOptions(
                model_dir=self.model_dir, experiment="etc/wikihop"
            ),
            Reporter("lines", output),
        )
        self.assertRegex(
            output.getvalue(),
            f"^{self.model_dir} has no etcmodel.json.*are not checked",
        )

    def test_missing_or_different_vocabulary(self):
        path = self.path("run", "vocab.txt")
        os.rename(path, self.path("words.txt"))
        self._fails(
            self._command("export"), f"{path} is missing.*Copy the file"
        )
        other = self.path("other.txt")
        for place, flags in ((path, []), (other, [f"--vocab_file={other}"])):
            shutil.copy(self.path("words.txt"), place)
            with open(place, "a") as stream:
                stream.write("word\n")
            self._fails(
                self._command("export", *flags),
                f"{place} is not the vocabulary of {self.model_dir}.*"
                f"expected {self.note['vocab_fingerprint']}",
            )

    @parameterized.parameters((None, "is missing"), ("a\n", "is not the voc"))
    def test_vocabulary_of_records(self, content, message):
        path = os.path.join(self.records, "vocab.txt")
        os.remove(path)
        if content:
            self._damage(content.encode(), "records", "vocab.txt")
        metadata = tfrecords.read_metadata(tfrecords.find_files(self.records))
        task = mock.Mock(metadata=metadata)
        spec = registry.get("wikihop")
        with self.assertRaisesRegex(UserError, f"{path} {message}"):
            runs.save(task, None, spec, "etc/wikihop", self.path("new"))
        self.assertFalse(os.path.exists(self.path("new", "etcmodel.json")))
        # The error occurs before a model is built.
        self._fails(self._command("train"), f"{path} {message}")

    @parameterized.parameters(*_DAMAGE, b'{"x": {}}', b'{"3": 4}')
    def test_damaged_thresholds(self, content):
        self._damage(content, "run", "tuned.json")
        spec = registry.get("hotpotqa")
        params = mock.Mock(**{spec.tuned.option: None})
        checkpoint = self.path("run", "ckpt-1")
        with self.assertRaisesRegex(
            UserError, "run/tuned.json.*`evaluate` and"
        ):
            runs.use_tuned(spec, params, checkpoint, self.model_dir)
        with self.assertRaisesRegex(UserError, "run/tuned.json"):
            runs.save_tuned(spec, {spec.tuned.option: 1.0}, 5, self.model_dir)

    @parameterized.parameters("lift.json", "run/etcmodel.json")
    def test_damaged_metadata_of_initial_weights(self, name):
        self._damage(b"{", name)
        directory = os.path.dirname(self.path(name))
        with self.assertRaisesRegex(UserError, f"{name}: it is not JSON"):
            lifted.check_vocabulary(directory, self.note)
        if name == "lift.json":
            self._damage(b'{"vocab_file": "vocab.txt"}', name)
            with self.assertRaisesRegex(UserError, "'vocab_fingerprint' is mi"):
                lifted.check_vocabulary(directory, self.note)

    def test_initial_weights_of_a_run_without_metadata(self):
        """The vocabulary's fingerprint is then computed from its file."""
        os.remove(self.path("run", "etcmodel.json"))
        note = {**self.note, "directory": self.records}
        os.mkdir(self.path("run", "best_ckpt"))
        for place in ("run", "run/best_ckpt"):
            self.assertTrue(lifted.check_vocabulary(self.path(place), note))
            with self.assertRaisesRegex(UserError, "different vocabularies"):
                lifted.check_vocabulary(
                    self.path(place), {**note, "vocab_fingerprint": "f"}
                )

    @parameterized.parameters("published/etc_config.json", "run/params.yaml")
    def test_damaged_configuration_of_initial_weights(self, name):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        for content in _DAMAGE:
            self._damage(content, name)
            self._fails(
                self._command(
                    "train",
                    f"--model_dir={self.path('new')}",
                    f"--init_checkpoint={os.path.dirname(path)}",
                ),
                f"{path}: .*; expected a (JSON|YAML) object",
            )


if __name__ == "__main__":
    tf.test.main()
