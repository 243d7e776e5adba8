import builtins
import contextlib
import io
import os
import tempfile
import types
from unittest import mock

import orbit
import tensorflow as tf
from absl import logging
from absl.testing import parameterized
from official.core import task_factory
from official.core import train_lib
from official.core import train_utils

from etcmodel.engine import run_options
from etcmodel.engine import runner as runner_lib
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.tasks import registry
from etcmodel.training import best_checkpoint
from etcmodel.training import damaged_records
from etcmodel.training import runs
from testing.flags import parse_options
from testing.tasks import write_json


class ReportNotesTest(tf.test.TestCase):
    def test_only_if_no_validation_is_better(self):
        spec = registry.get("classify")
        bad = {"majority_accuracy": 0.5, "accuracy": 0.5, "labels_predicted": 1}
        good = bad | {"accuracy": 0.6, "labels_predicted": 2}
        for validations, expected in (
            ([], ""),
            ([bad], "same label for all documents"),
            ([good, bad], ""),
            ([bad, bad | {"labels_predicted": 2}], "not above 0.5, the accura"),
        ):
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                runner_lib.report_notes(spec, validations, Reporter())
            self.assertIn(expected, " ".join(output.getvalue().split()))
            self.assertEqual(not expected, not output.getvalue())


class ParseParamsTest(tf.test.TestCase, parameterized.TestCase):
    def _parse(self, *arguments):
        """Returns the configuration, and the notes that were printed."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            entry, params = run_options.parse_params(
                parse_options(run_options.TrainerOptions, *arguments),
                "etc/wikihop",
                Reporter(),
            )
        self.assertEqual("wikihop", entry.name)
        return params, output.getvalue()

    def _schedule(self, params):
        config = params.trainer.optimizer_config
        return (
            config.learning_rate.polynomial.decay_steps,
            config.warmup.linear.warmup_steps,
        )

    @parameterized.parameters(
        ("--verbose", logging.INFO), ("--noverbose", logging.ERROR)
    )
    def test_logging(self, flag, expected):
        before = logging.get_verbosity(), tf.get_logger().level
        with run_options.logging_level(flag == "--verbose"):
            self.assertEqual(expected, logging.get_verbosity())
        after = logging.get_verbosity(), tf.get_logger().level
        self.assertEqual(before, after)

    def test_later_ones_win(self):
        encoders = {"preset": "tiny", "local_radius": 7}, {"local_radius": 3}
        flags_given = ["--params_override=task.model.encoder.local_radius=5"]
        for i, encoder in enumerate(encoders):
            path = os.path.join(self.get_temp_dir(), str(i))
            task = {"label_smoothing": i / 4, "model": {"encoder": encoder}}
            write_json(path, {"task": task})
            flags_given.append(f"--config_file={path}")
        params, output = self._parse(*flags_given)
        encoder = params.task.model.encoder
        self.assertEqual(0.25, params.task.label_smoothing)
        self.assertEqual("tiny", encoder.preset)
        self.assertEqual(5, encoder.local_radius)
        self.assertEmpty(output)

    def test_experiments_of_all_tasks(self):
        for task, spec in registry.tasks().items():
            for name in spec.experiments:
                entry, _ = run_options.parse_params(
                    run_options.TrainerOptions(model_dir="x"), name, Reporter()
                )
                self.assertEqual(task, entry.name)
        with self.assertRaisesRegex(UserError, "mean etc/wikihop or"):
            run_options.parse_params(
                run_options.TrainerOptions(model_dir="x"),
                "etc/wikihop_x",
                Reporter(),
            )

    def test_schedule_follows_the_number_of_steps(self):
        steps = "--params_override=trainer.train_steps=50"
        params, output = self._parse(steps)
        # A tenth of the steps is warm-up, as in the paper, rounded down as in
        # the default configuration.
        decay, warmup = self._schedule(params)
        self.assertEqual(50, decay)
        self.assertBetween(warmup, 4, 5)
        self.assertIn(f"50 steps, of which {warmup} are warm-up", output)
        # A decay that the user sets is kept.
        own = f"{steps},trainer.optimizer_config."
        params, _ = self._parse(f"{own}warmup.linear.warmup_steps=7")
        self.assertEqual((50, 7), self._schedule(params))
        params, _ = self._parse(f"{own}learning_rate.polynomial.decay_steps=70")
        _, default = self._schedule(self._parse()[0])
        self.assertEqual((70, default), self._schedule(params))

    def test_tpu_flag_chooses_its_strategy(self):
        params, _ = self._parse("--tpu=grpc://10.0.0.2")
        self.assertEqual("grpc://10.0.0.2", params.runtime.tpu)
        self.assertEqual("tpu", params.runtime.distribution_strategy)

    @parameterized.parameters((0, 3), (2, 2))
    def test_all_gpus_by_default(self, wanted, expected):
        with mock.patch.object(
            tf.config, "list_physical_devices", return_value=["gpu"] * 3
        ):
            params, _ = self._parse(
                f"--params_override=runtime.num_gpus={wanted}"
            )
        self.assertEqual(expected, params.runtime.num_gpus)

    @parameterized.parameters(
        ("runtime.distribution_strategy=nothing", "rejects .*[Nn]othing"),
        ("task.label_smoothing=0.5", "long_length .* is unknown"),
    )
    def test_configurations_that_the_trainer_rejects(self, override, message):
        params, _ = self._parse(f"--params_override={override}")
        with self.assertRaisesRegex(UserError, message):
            runner_lib.make_runner(params, "train", self.get_temp_dir())

    def test_one_cpu_needs_no_strategy(self):
        """A strategy would autotune iterators, which are slow to delete."""
        with (
            mock.patch.object(
                tf.config, "list_physical_devices", return_value=[]
            ),
            mock.patch.object(task_factory, "get_task"),
            mock.patch.object(train_utils, "create_trainer") as trainer,
            mock.patch.object(train_lib, "OrbitExperimentRunner") as make,
        ):
            params, _ = self._parse()
            runner_lib.make_runner(params, "train", self.get_temp_dir())
        self.assertIs(
            tf.distribute.get_strategy(),
            make.call_args.kwargs["distribution_strategy"],
        )
        self.assertIs(trainer.return_value, make.call_args.kwargs["trainer"])
        self.assertIsInstance(
            trainer.call_args.kwargs["checkpoint_exporter"],
            best_checkpoint.BestCheckpointExporter,
        )

    def test_runner_shows_steps_and_validations_and_sets_the_precision(self):
        precision = tf.keras.mixed_precision
        before = precision.global_policy().name
        self.addCleanup(precision.set_global_policy, before)
        params, _ = self._parse(
            "--params_override=runtime.mixed_precision_dtype=bfloat16"
        )
        show = mock.Mock()
        out = io.StringIO()
        # /proc/cpuinfo of a CPU without bfloat16 instructions.
        flags_of_cpu = mock.mock_open(read_data="flags\t: fma avx2\n")
        with (
            mock.patch.object(builtins, "open", flags_of_cpu),
            mock.patch.object(task_factory, "get_task"),
            mock.patch.object(train_utils, "create_trainer") as trainer,
            mock.patch.object(train_lib, "OrbitExperimentRunner") as make,
        ):
            runner_lib.make_runner(
                params,
                "train",
                self.get_temp_dir(),
                watch=runner_lib.Watch(progress=show),
                reporter=Reporter("lines", out),
            )
        self.assertIn("float32 is faster", out.getvalue())
        self.assertEqual("mixed_bfloat16", precision.global_policy().name)
        trainer.return_value.global_step.numpy.return_value = 7
        (on_step,) = make.call_args.kwargs["train_actions"]
        (on_validation,) = make.call_args.kwargs["eval_actions"]
        logs = [{"training_loss": tf.constant(0.5)} for _ in range(2)]
        with mock.patch.object(runner_lib, "_clock", side_effect=[10.0, 12.0]):
            on_step(logs[0])
            show.step.assert_called_once_with(7, 0.5)
            trainer.return_value.global_step.numpy.return_value = 10
            on_step(logs[1])
        # The time of the first step, which builds the graph, is excluded.
        self.assertNotIn("examples_per_second", logs[0])
        size = params.task.train_data.global_batch_size
        self.assertEqual(3 * size / 2, logs[1]["examples_per_second"])
        controller = make.call_args.kwargs["controller_cls"]
        with mock.patch.object(orbit.Controller, "evaluate") as evaluate:
            controller.evaluate(mock.MagicMock(spec=controller), steps=3)
        show.validation_starts.assert_called_once_with()
        evaluate.assert_called_once_with(steps=3)
        trainer.return_value.global_step.numpy.return_value = 7
        on_validation({"validation_loss": 1.5, "accuracy": 0.25, "x": 3})
        show.validated.assert_called_once_with(
            "Validation at step 7: validation_loss 1.5, accuracy 0.25"
        )


class PatienceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("higher", [0.5, 0.75, 0.75, 0.625]),
        ("lower", [0.75, 0.5, 0.5, 0.625]),
        # Validations before an interrupt count towards `patience`, too.
        ("higher", [0.75, 0.75, 0.625], 2),
        ("higher", [0.75, 0.5, 0.5, 0.625], None, None),
        # The validation loss breaks ties.
        ("higher", [0.75, 0.75, 0.5, 0.5], None, 2, [3.0, 2.0, 1.0, 1.0]),
        ("lower", [0.5, 0.5, 0.5, 0.5], 1, 2, [3.0, 2.0, 2.0, 2.5]),
    )
    def test_stops(
        self, comparison, values, resumed_at=None, patience=2, losses=None
    ):
        """Training stops after validations without improvement, and saves."""
        model_dir = self.enterContext(tempfile.TemporaryDirectory())
        trainer = types.SimpleNamespace(
            best_checkpoint_eval_metric="loss",
            best_checkpoint_metric_comp=comparison,
            **{"train_steps": 90, "validation_steps": 1},
            validation_interval=10,
        )
        params = types.SimpleNamespace(trainer=trainer)
        show = mock.MagicMock()
        watch = runner_lib.Watch(progress=show, patience=patience)

        def make_actions():
            actions = runner_lib._Actions(
                params, "train_and_eval", model_dir, None, watch
            )
            actions.trainer = mock.Mock()
            return actions

        steps = []

        def train(**_):
            actions = make_actions()
            for number, value in enumerate(values):
                if number == resumed_at:
                    actions = make_actions()
                steps.append(10 * number + 10)
                actions.trainer.global_step.numpy.return_value = steps[-1]
                logs = {"loss": value}
                if losses is not None:
                    logs["validation_loss"] = losses[number]
                actions.after_validation(
                    {name: tf.constant(x) for name, x in logs.items()}
                )
            steps.append("end")

        runner = mock.MagicMock(model_dir=model_dir)
        runner.controller.global_step.numpy.return_value = 0
        runner.controller.train_and_evaluate.side_effect = train
        runner_lib.run_mode(runner, params, "train_and_eval", watch)
        stops = patience is not None
        expected = [10 * i + 10 for i in range(len(values))]
        self.assertEqual(expected + ["end"] * (not stops), steps)
        shown = str(show.write.call_args_list)
        self.assertEqual(stops, "training stops" in shown)
        self.assertEqual(stops, runner.controller.save_checkpoint.called)

    @parameterized.parameters(None, 2)
    def test_validation_without_the_metric(self, patience):
        trainer = types.SimpleNamespace(
            best_checkpoint_eval_metric="f1",
            best_checkpoint_metric_comp="higher",
        )
        actions = runner_lib._Actions(
            types.SimpleNamespace(trainer=trainer),
            "train_and_eval",
            self.enterContext(tempfile.TemporaryDirectory()),
            None,
            runner_lib.Watch(patience=patience),
        )
        actions.trainer = mock.Mock()
        actions.trainer.global_step.numpy.return_value = 10
        actions.after_validation({"loss": 0.5})


class RunModeTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("train", ["train"]),
        ("eval", ["evaluate"]),
        ("train_and_eval", ["train_and_evaluate"]),
    )
    def test_calls_of_the_controller(self, mode, expected):
        sizes = {"train_steps": 30, "validation_steps": 4}
        sizes |= {"validation_interval": 10}
        trainer = types.SimpleNamespace(**sizes)
        runner = mock.MagicMock(model_dir=self.get_temp_dir())
        runner.controller.global_step.numpy.return_value = 0
        runner.controller.evaluate.return_value = {
            "accuracy": tf.constant(0.5),
            "best_accuracy": tf.constant(1.0),
        }
        logs = runner_lib.run_mode(
            runner, types.SimpleNamespace(trainer=trainer), mode
        )
        calls = {
            name: kwargs
            for name, _, kwargs in runner.controller.method_calls
            if name != "global_step.numpy"
        }
        self.assertEqual(expected, list(calls))
        self.assertEqual({"accuracy": 0.5} if "evaluate" in calls else {}, logs)
        both = {"train_steps": 30, "eval_steps": 4, "eval_interval": 10}
        arguments = {
            "train": {"steps": 30},
            "evaluate": {"steps": 4},
            "train_and_evaluate": both,
        }
        self.assertEqual({name: arguments[name] for name in expected}, calls)

    @parameterized.parameters(
        # Step of the interrupt; steps validated before; expected calls.
        (0, None, []),
        (20, [10, 20], []),
        (20, None, []),
        (20, [10], ["evaluate"]),
        (23, [10, 20], ["train 30", "evaluate"]),
        (34, [10, 20, 30], ["train 35", "evaluate"]),
        (35, [10, 20, 30], ["evaluate"]),
    )
    def test_a_resumed_run_validates_at_the_same_steps(
        self, step, validated, expected
    ):
        model_dir = self.enterContext(tempfile.TemporaryDirectory())
        for number in validated or ():
            runs.save_validation({"accuracy": 0.5}, number, model_dir)
        calls = []
        controller = mock.Mock()
        controller.global_step.numpy.return_value = step
        controller.train.side_effect = lambda steps, **_: calls.append(
            f"train {steps}"
        )
        controller.evaluate.side_effect = lambda steps: calls.append("evaluate")
        trainer = types.SimpleNamespace(
            train_steps=35, validation_steps=4, validation_interval=10
        )
        runner_lib._catch_up(controller, trainer, model_dir)
        self.assertEqual(expected, calls)

    @parameterized.parameters("train", "eval")
    def test_damaged_records_are_named(self, mode):
        lost = tf.errors.DataLossError(None, None, "truncated record")
        runner = mock.MagicMock()
        runner.controller.train.side_effect = lost
        runner.controller.evaluate.side_effect = lost
        with (
            mock.patch.object(
                damaged_records, "find", return_value=UserError("x is damaged")
            ) as find,
            self.assertRaisesRegex(UserError, "x is damaged"),
        ):
            runner_lib.run_mode(runner, mock.MagicMock(), mode)
        find.assert_called_once_with(runner.trainer.task)


class CheckDataTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("train", "train_data"),
        ("eval", "validation_data"),
        ("train_and_eval", "train_data validation_data"),
    )
    def test_data_that_a_mode_reads(self, mode, needed):
        for missing in ("", "train_data", "validation_data"):
            paths = {"train_data": "a", "validation_data": "b", missing: ""}
            data = {
                name: types.SimpleNamespace(input_path=path)
                for name, path in paths.items()
            }
            params = types.SimpleNamespace(task=types.SimpleNamespace(**data))
            if missing not in needed.split():
                run_options.check_data(params, mode)
                continue
            with self.assertRaisesRegex(
                UserError, f"no {missing}.*`{missing}=DIR`"
            ):
                run_options.check_data(params, mode)


if __name__ == "__main__":
    tf.test.main()
