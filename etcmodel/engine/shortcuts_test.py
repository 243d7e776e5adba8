import contextlib
import io
import json
import os
import tempfile
import types

import tensorflow as tf
from absl.testing import parameterized
from official.core import exp_factory

from etcmodel import models
from etcmodel.engine import run_options
from etcmodel.engine import shortcuts
from etcmodel.engine import train
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.pipeline import tfrecords
from etcmodel.tasks import registry
from etcmodel.training import runs
from testing.flags import parse_options


class ShortcutsTest(tf.test.TestCase, parameterized.TestCase):
    def _params(self, *arguments, experiment="etc/wikihop"):
        """Returns the configuration, and the notes that were printed."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            _, params = run_options.parse_params(
                parse_options(train.Options, *arguments), experiment, Reporter()
            )
        return params, output.getvalue()

    def _records(self, number, **features):
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        with tfrecords.ShardedWriter(directory, "train", 1):
            pass
        note = {
            "preprocessing_config": features,
            "num_examples": number,
            "task": "x",
        }
        note |= {"split": "train", "format": tfrecords.FORMAT}
        note |= {"vocab_file": "v", "vocab_fingerprint": "f", "vocab_size": 9}
        note["tokenizer"] = None
        tfrecords.write_json(directory, tfrecords.METADATA_FILE, note)
        return directory

    def test_parameters_that_flags_set(self):
        path = self._records(100)
        params, _ = self._params(
            f"--train_data={path}",
            "--validation_data=/DEV",
            "--batch_size=7",
            "--learning_rate=0.25",
            "--preset=large",
            "--seed=5",
            # Flags override the other sources.
            "--params_override=task.train_data.global_batch_size=9",
        )
        self.assertEqual(path, params.task.train_data.input_path)
        self.assertEqual("/DEV", params.task.validation_data.input_path)
        self.assertEqual(7, params.task.train_data.global_batch_size)
        self.assertEqual(7, params.task.validation_data.global_batch_size)
        self.assertEqual("large", params.task.model.encoder.preset)
        self.assertEqual(5, params.task.train_data.seed)
        rate = params.trainer.optimizer_config.learning_rate.polynomial
        self.assertEqual(0.25, rate.initial_learning_rate)

    def _write(self, name, content):
        path = os.path.join(self.get_temp_dir(), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as stream:
            json.dump(content, stream)

    @parameterized.parameters("lifted", "lifted/model.ckpt")
    def test_sizes_of_a_published_checkpoint(self, place):
        sizes = {"hidden_size": 24, "vocab_size": 7, "use_hard_g2l_mask": False}
        self._write("lifted/etc_config.json", sizes)
        place = os.path.join(self.get_temp_dir(), place)
        params, _ = self._params(
            f"--init_checkpoint={place}", experiment="etc/hotpotqa"
        )
        self.assertEqual(place, params.task.init_checkpoint)
        encoder = params.task.model.encoder
        self.assertEqual((24, 7), (encoder.hidden_size, encoder.vocab_size))
        # The experiment's values are kept, and the file is not needed again.
        self.assertTrue(encoder.use_hard_g2l_mask)
        self.assertEqual("", encoder.config_file)
        with self.assertRaisesRegex(UserError, "`preset=tiny` was given"):
            self._params(f"--init_checkpoint={place}", "--preset=tiny")
        params, _ = self._params(
            f"--init_checkpoint={place}",
            "--params_override=task.model.encoder.config_file=own.json",
        )
        self.assertIsNone(params.task.model.encoder.hidden_size)
        # A checkpoint without a configuration.
        params, _ = self._params(f"--init_checkpoint={self.get_temp_dir()}")
        self.assertIsNone(params.task.model.encoder.hidden_size)

    def test_note_about_overruled_sizes(self):
        """Names sizes of the preset that the checkpoint overrules."""
        sizes = models.EtcConfig.from_preset("base", vocab_size=7).to_dict()
        self._write("lifted/etc_config.json", {**sizes, "local_radius": 40})
        place = os.path.join(self.get_temp_dir(), "lifted")
        _, out = self._params(
            f"--init_checkpoint={place}", experiment="etc/hotpotqa_shared"
        )
        (line,) = [x for x in out.splitlines() if "base_shared" in x]
        self.assertEndsWith(
            line,
            ": local_radius is 40, not 84; share_qkv_projections is False, "
            "not True; share_att_output_projection is False, not True.",
        )
        self._write("lifted/etc_config.json", sizes)
        _, out = self._params(f"--init_checkpoint={place}")
        self.assertNotIn(place, out)

    @parameterized.parameters(
        *("run", "run/", "run/ckpt-3"),
        *("run/best_ckpt", "run/best_ckpt/", "run/best_ckpt/best_ckpt-500"),
    )
    def test_sizes_of_another_run(self, place):
        encoder = {"preset": "tiny", "hidden_size": 24, "local_radius": None}
        self._write(
            "run/params.yaml", {"task": {"model": {"encoder": encoder}}}
        )
        self._write("run/etcmodel.json", {"experiment": "x", "task": "x"})
        # The run's config file has changes by its task, so it is not read.
        self._write("run/etc_config.json", {"local_radius": 9})
        os.makedirs(
            os.path.join(self.get_temp_dir(), "run", "best_ckpt"), exist_ok=True
        )
        place = os.path.join(self.get_temp_dir(), place)
        # TensorFlow reads file:// as it reads gs://.
        for path in (place, f"file://{place}"):
            params, _ = self._params(f"--init_checkpoint={path}")
            encoder = params.task.model.encoder
            self.assertEqual(
                ("tiny", 24), (encoder.preset, encoder.hidden_size)
            )
            self.assertIsNone(encoder.local_radius)

    def test_a_run_of_the_same_experiment(self):
        """Its values replace the experiment's, but not the user's."""
        encoder = {"preset": "tiny", "use_hard_g2l_mask": False}
        model = {"encoder": encoder, "unit_prior": 0.3, "long_length": 9}
        model["query_ignore_hard_g2l"] = False
        self._write("run/params.yaml", {"task": {"model": model}})
        note = {"experiment": "etc/select", "task": "select"}
        self._write("run/etcmodel.json", note)
        place = os.path.join(self.get_temp_dir(), "run")
        for experiment, arguments, expected in (
            ("etc/select", [], (False, 0.3, False)),
            (
                "etc/select",
                [
                    "--params_override=task.model.unit_prior=0.1,"
                    "task.model.encoder.use_hard_g2l_mask=true"
                ],
                (True, 0.1, False),
            ),
            # `config_file` sets the whole encoder.
            (
                "etc/select",
                ["--params_override=task.model.encoder.config_file=own.json"],
                (True, 0.1, True),
            ),
            # Options of the model are not taken from another experiment.
            ("etc/select_large", [], (True, 0.1, True)),
        ):
            params, _ = self._params(
                f"--init_checkpoint={place}", *arguments, experiment=experiment
            )
            model = params.task.model
            self.assertEqual(
                expected,
                (
                    model.encoder.use_hard_g2l_mask,
                    model.unit_prior,
                    model.query_ignore_hard_g2l,
                ),
            )
            # The records determine the vocabulary's size.
            self.assertEqual(0, model.long_length or 0)
            is_own = model.encoder.config_file
            self.assertEqual("base" if is_own else "tiny", model.encoder.preset)
        # The parameter has the same effect as the flag.
        params, _ = self._params(
            f"--params_override=task.init_checkpoint={place}",
            experiment="etc/select",
        )
        self.assertEqual(0.3, params.task.model.unit_prior)

    def test_small(self):
        """Other flags override the values of `small`."""
        params, _ = self._params("--small", "--batch_size=4")
        self.assertEqual("tiny", params.task.model.encoder.preset)
        self.assertEqual(4, params.task.train_data.global_batch_size)
        params, _ = self._params(
            "--small", "--params_override=task.model.encoder.preset=base"
        )
        self.assertEqual("base", params.task.model.encoder.preset)
        self.assertEqual(8, params.task.train_data.global_batch_size)

    def test_small_of_segments(self):
        """Batch sizes are rounded up to whole examples."""
        records = self._records(130, num_blocks_per_example=6)
        params, _ = self._params(
            "--small",
            f"--train_data={records}",
            experiment="read_twice/narrativeqa",
        )
        self.assertEqual(12, params.task.train_data.global_batch_size)
        self.assertEqual(12, params.task.validation_data.global_batch_size)
        self.assertEqual(
            registry.get("read_twice_narrativeqa")
            .make_preprocessing_config({})
            .block_length,
            params.task.model.encoder.to_config(9).max_seq_length,
        )

    def test_steps_follow_the_records(self):
        train_data = f"--train_data={self._records(130)}"
        params, out = self._params(train_data, "--batch_size=40")
        # Three batches per epoch, for the paper's 15 epochs.
        self.assertEqual(45, params.trainer.train_steps)
        self.assertEqual(3, params.trainer.validation_interval)
        self.assertEqual(3, params.trainer.checkpoint_interval)
        optimizer = params.trainer.optimizer_config
        self.assertEqual(45, optimizer.learning_rate.polynomial.decay_steps)
        self.assertEqual(4, optimizer.warmup.linear.warmup_steps)
        self.assertIn(
            "130 examples in batches of 40: 3 steps an epoch, 15 epochs.", out
        )
        params, _ = self._params(train_data, "--batch_size=40", "--epochs=2.5")
        self.assertEqual(8, params.trainer.train_steps)
        # Fewer records than the batch size.
        params, _ = self._params(f"--train_data={self._records(5)}")
        self.assertEqual(15, params.trainer.train_steps)

    def test_settings_follow_the_records(self):
        """For tasks with documents of one's own; base is 768 wide."""
        given = [
            f"--train_data={self._records(200)}",
            f"--model_dir={self.get_temp_dir()}/none",
        ]

        def settings(*flags_given, experiment="etc/classify"):
            params, out = self._params(
                *given, *flags_given, experiment=experiment
            )
            trainer = params.trainer
            schedule = trainer.optimizer_config.learning_rate.polynomial
            numbers = (
                params.task.train_data.global_batch_size,
                schedule.initial_learning_rate,
                trainer.train_steps,
                trainer.validation_interval,
            )
            return numbers, out

        # 25 steps an epoch; 12 epochs have 300 steps, and 10 validations.
        numbers, out = settings()
        self.assertEqual((8, 5e-5, 300, 30), numbers)
        self.assertIn(
            "`batch_size=8` and `learning_rate=5e-05` for 200 examples and an "
            "encoder of width 768.",
            out,
        )
        self.assertIn("25 steps an epoch, 12 epochs.", out)
        numbers, _ = settings("--preset=tiny", "--lora_rank=2")
        self.assertEqual((8, 5e-3, 300, 30), numbers)
        # What is set is kept, by whatever way.
        override = "--params_override=task.train_data.global_batch_size=16"
        for experiment in ("etc/classify", "etc/select", "etc/answer"):
            numbers, out = settings(
                *("--learning_rate=5e-5", override, "--epochs=2"),
                experiment=experiment,
            )
            self.assertEqual((16, 5e-5, 24, 12), numbers)
            self.assertNotIn("encoder of width", out)
        numbers, _ = settings("--params_override=trainer.train_steps=7")
        self.assertEqual((8, 5e-5, 7), numbers[:3])
        numbers, _ = settings("--small")
        self.assertEqual((8, 1e-3, 300, 30), numbers)
        # 31,250 steps are not validated every 625, as in the recipe.
        big = f"--train_data={self._records(100_000)}"
        numbers, _ = settings(big)
        self.assertEqual((16, 5e-5, 31_250, 6_250), numbers)
        # Steps that are set stay, even the experiment's own 3,125.
        numbers, _ = settings("--params_override=trainer.train_steps=3125")
        self.assertEqual((8, 5e-5, 3125), numbers[:3])
        # The rate of another schedule is not told as this one's.
        kind = "trainer.optimizer_config.learning_rate.type=cosine"
        _, out = settings(f"--params_override={kind}")
        self.assertIn("`batch_size=8` for 200 examples", out)
        # The paper's tasks keep the paper's settings.
        default = exp_factory.get_exp_config("etc/wikihop")
        numbers, _ = settings(experiment="etc/wikihop")
        self.assertEqual(default.task.train_data.global_batch_size, numbers[0])

    def test_a_run_keeps_its_settings(self):
        """For example, if its records were 499 at first, and are 500 now."""
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        flags_given = [
            f"--model_dir={folder}",
            f"--train_data={self._records(500)}",
        ]
        params, _ = self._params(*flags_given, experiment="etc/classify")
        self.assertEqual(16, params.task.train_data.global_batch_size)
        tf.train.Checkpoint(x=tf.Variable(1)).save(f"{folder}/ckpt")
        params.task.train_data.global_batch_size = 8
        params.trainer.optimizer_config.learning_rate.polynomial.override(
            {"initial_learning_rate": 3e-5}
        )
        runs.write_params(folder, params.as_dict())
        params, _ = self._params(*flags_given, experiment="etc/classify")
        self.assertEqual(8, params.task.train_data.global_batch_size)
        rates = params.trainer.optimizer_config.learning_rate
        self.assertEqual(3e-5, rates.polynomial.initial_learning_rate)
        # Five epochs of 62 steps, not ten of 31.
        self.assertEqual(310, params.trainer.train_steps)
        params, _ = self._params(
            *(*flags_given, "--batch_size=32"), experiment="etc/classify"
        )
        self.assertEqual(32, params.task.train_data.global_batch_size)

    def test_numbers_of_epochs_and_of_steps(self):
        train_data = f"--train_data={self._records(130)}"
        for epochs in ("0", "nan", "inf"):
            with self.assertRaisesRegex(UserError, f"`epochs={epochs}`: "):
                self._params(train_data, f"--epochs={epochs}")
        # A number of steps that the user sets is kept.
        steps = "--params_override=trainer.train_steps=7"
        params, _ = self._params(train_data, steps)
        self.assertEqual(7, params.trainer.train_steps)
        params, _ = self._params(train_data, steps, "--epochs=1")
        self.assertEqual(2, params.trainer.train_steps)

    def test_batches_of_segments(self):
        records = self._records(6, num_blocks_per_example=8)
        for flags_given, steps, message in (
            (
                ["--batch_size=16", "--epochs=2"],
                2 * 3,
                "6 examples of 8 segments each in batches of 16 segments: 3 "
                "steps an epoch, 2 epochs.",
            ),
            (["--batch_size=48", "--epochs=1"], 1, ": 1 step an epoch, 1 ep"),
            # Experiments of pre-training set steps, not epochs.
            ([], 1_000_000, ""),
        ):
            params, out = self._params(
                f"--train_data={records}",
                *flags_given,
                experiment="read_twice/pretrain",
            )
            self.assertEqual(steps, params.trainer.train_steps)
            self.assertIn(message, out)

    def test_without_a_note_the_experiment_says(self):
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        with tfrecords.ShardedWriter(directory, "train", 1):
            pass
        default = exp_factory.get_exp_config("etc/wikihop")
        params, out = self._params(f"--train_data={directory}")
        self.assertEqual(
            default.trainer.train_steps, params.trainer.train_steps
        )
        self.assertEmpty(out)

    @parameterized.parameters(
        "trainer.train_steps",
        "trainer.summary_interval",
        "task.train_data.global_batch_size",
        "task.validation_data.global_batch_size",
    )
    def test_numbers_below_1(self, name):
        with self.assertRaisesRegex(UserError, f"{name} is 0, but must be at"):
            self._params(f"--params_override={name}=0")

    def test_paths_become_absolute(self):
        """`params.yaml` has absolute paths."""
        params, _ = self._params(
            "--validation_data=dev,/data/b,gs://bucket/c",
        )
        self.assertEqual(
            f"{os.path.abspath('dev')},/data/b,gs://bucket/c",
            params.task.validation_data.input_path,
        )

    def test_other_commands_do_not_count_steps(self):
        params = types.SimpleNamespace()
        shortcuts.follow_records(
            params,
            registry.get("nq"),
            "etc/nq",
            types.SimpleNamespace(),
            (),
            Reporter(),
        )


if __name__ == "__main__":
    tf.test.main()
