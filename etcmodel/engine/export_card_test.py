import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
from unittest import mock

import huggingface_hub
import numpy as np
import tensorflow as tf

from etcmodel.engine import evaluate
from etcmodel.engine import export
from etcmodel.engine import export_card
from etcmodel.engine import train
from etcmodel.engine import trained_model
from etcmodel.errors import UserError
from etcmodel.pipeline import own_files
from etcmodel.serving import exported
from etcmodel.serving import saved_model
from etcmodel.serving import small_weights
from etcmodel.tasks import registry
from etcmodel.tasks.documents import documents
from etcmodel.training import runs
from testing import served_models
from testing.models import small_records
from testing.tasks import CommandTestCase
from testing.tasks import read_json

_PARAMS = {
    "trainer.train_steps": 1,
    "task.model.encoder.num_hidden_layers": 1,
    # Most weights are in two large matrices.
    "task.model.encoder.intermediate_size": 4096,
}
_KINDS = ("bfloat16", "int8")


@functools.cache
def _signature(path):
    """Returns the `serving_default` of a SavedModel."""
    model = tf.saved_model.load(path)
    return functools.partial(_call, model, "serving_default")


def _randomize(checkpoint):
    """Gives matrices random values, so that answers are not near ties."""
    reader = tf.train.load_checkpoint(checkpoint)
    rng = np.random.default_rng(1)
    values = {}
    for name in reader.get_variable_to_shape_map():
        value = reader.get_tensor(name)
        if getattr(value, "ndim", 0) > 1 and value.dtype == np.float32:
            scale = 1 if "table" in name else 2 * value.shape[0] ** -0.5
            value = rng.normal(0, scale, value.shape).astype(np.float32)
        values[name] = value
    tf.raw_ops.SaveV2(
        prefix=checkpoint,
        tensor_names=[*values],
        shape_and_slices=[""] * len(values),
        tensors=[tf.constant(x) for x in values.values()],
    )


def _call(model, name, **inputs):
    return model.signatures[name](
        **{x: tf.constant(y) for x, y in inputs.items()}
    )


class ExportCardTest(CommandTestCase):
    """Exports a run of one step with rounded weights."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.records = small_records("wikihop")
        cls.run_dir = os.path.join(cls.root, "run")
        train.train(
            train.Options(
                experiment="etc/wikihop",
                model_dir=cls.run_dir,
                train_data=cls.records,
                small=True,
                batch_size=3,
                seed=1,
                params_override=_PARAMS,
            )
        )
        _randomize(tf.train.latest_checkpoint(cls.run_dir))
        cls.measured = cls.export("int8", validation_data=cls.records).measured
        cls.export("bfloat16", license="mit", language=["en"])

    @classmethod
    def path_of(cls, weights):
        return os.path.join(cls.root, weights)

    @classmethod
    def export(cls, weights, output=None, **options):
        return export.export(
            export.Options(
                output_dir=output or cls.path_of(weights),
                weights=weights,
                **{"model_dir": cls.run_dir, "tolerance": 0.99, **options},
            )
        )

    def load(self):
        """Returns the trained model."""
        return trained_model.load(
            registry.get("wikihop"),
            self.run_dir,
            runs.read_params(self.run_dir),
            runs.find_vocabulary(self.run_dir),
        )

    def read_rows(self, *names):
        """Returns name -> values of the records' fields; by default, inputs."""
        path = os.path.join(os.path.dirname(self.records), "small.json")
        names = names or ("query", "candidates", "supports")
        rows = read_json(path)
        return {name: [row[name] for row in rows] for name in names}

    def read_card(self, weights):
        path = os.path.join(self.path_of(weights), "README.md")
        return huggingface_hub.ModelCard.load(path)

    def test_sizes_on_disk(self):
        model = self.load().model
        whole = 4 * sum(int(np.prod(x.shape)) for x in model.variables)
        graphs = []
        # Scales of int8 take some more space in such narrow matrices.
        for kind, ratio in zip(_KINDS, (0.5, 0.25), strict=True):
            path = self.path_of(kind)
            folder = os.path.join(path, "variables")
            size = sum(
                os.path.getsize(os.path.join(folder, name))
                for name in os.listdir(folder)
            )
            self.assertAllClose(ratio, size / whole, atol=0.06)
            graphs.append(os.path.getsize(os.path.join(path, "saved_model.pb")))
        # The graph contains no copies of the matrices, which have 131,072
        # elements each.
        self.assertLess(np.ptp(graphs), 60_000)

    def test_answers_equal_those_of_rounded_weights(self):
        trained = self.load()
        request = self.read_rows()
        inputs = {x: tf.constant(y) for x, y in request.items()}
        answer = trained.answers().answer
        exact = answer(**inputs)["candidate_probabilities"]
        variables = saved_model.model_variables(trained.model)
        values = [x.numpy() for x in variables]
        for kind in _KINDS:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
            small_weights.round_weights(variables, kind)
            found = _signature(self.path_of(kind))(**request)
            for name, value in answer(**inputs).items():
                if value.dtype == tf.string:
                    self.assertAllEqual(value, found[name])
                else:
                    self.assertAllClose(value, found[name], 1e-4, 1e-5)
            self.assertNotAllClose(
                exact, found["candidate_probabilities"], 1e-4, 1e-5
            )

    def test_metrics_are_those_of_the_exported_model(self):
        rows = self.read_rows("query", "candidates", "supports", "answer")
        answers = rows.pop("answer")
        outputs = _signature(self.path_of("int8"))(**rows)
        probabilities = outputs["candidate_probabilities"].numpy()
        gold = [
            p[candidates.index(answer)]
            for p, candidates, answer in zip(
                probabilities, rows["candidates"], answers, strict=True
            )
        ]
        metrics = self.measured.metrics
        losses = [metrics[x]["validation_loss"] for x in ("int8", "float32")]
        self.assertEqual("accuracy", self.measured.main_metric)
        self.assertAllClose(-np.log(gold).mean(), losses[0], 1e-4)
        self.assertNotAllClose(*losses, 1e-4)

    def test_cards(self):
        card = self.read_card("int8")
        self.assertEqual("multiple-choice", card.data.pipeline_tag)
        values = {x.metric_type: x.metric_value for x in card.data.eval_results}
        expected = self.measured.metrics["int8"]["accuracy"]
        self.assertEqual({"accuracy": expected}, values)
        for text in (
            "9 examples of the task `wikihop`; training steps: 1, each of 3",
            "Measured on 9 validation examples",
            "Layers of the encoder: 1.",
            "at most 32 tokens of text and 16 global tokens",
            "letters are Latin 100 %",
            f"tensorflow {tf.__version__}",
        ):
            self.assertIn(text, card.text)
        card = self.read_card("bfloat16")
        self.assertEqual("mit", card.data.license)
        self.assertEqual(["en"], card.data.language)
        self.assertIn("metric of the bfloat16 weights was not", card.text)

    def test_the_cards_commands_run(self):
        path, text = self.path_of("int8"), self.read_card("int8").text
        request = self.load().preprocessor.REQUEST
        answer = _signature(path)(**request)["answer"].numpy()[0].decode()
        program = text.split("```python\n")[1].split("```")[0]
        # In isolated mode, Python does not find this package.
        done = subprocess.run(
            [sys.executable, "-I", "-c", program],
            *(),
            cwd=path,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn(f"answer [b'{answer}']\n", done.stdout)
        commands = [
            part.split("```")[0] for part in text.split("```bash\n")[1:]
        ]
        self.assertLen(commands, 2)
        with served_models.serve_in_thread(path, "wikihop", request) as port:
            for command in commands:
                made = subprocess.run(
                    command.replace("localhost:8501", f"127.0.0.1:{port}"),
                    shell=True,
                    capture_output=True,
                    check=True,
                )
                (found,) = json.loads(made.stdout)["predictions"]
                self.assertEqual(answer, found["answer"])

    def test_example_without_a_query(self):
        """Records without queries need none in the example, either."""
        request = documents.DocumentPreprocessor.REQUEST
        text = documents.DocumentPreprocessor.TEXT_REQUEST
        found = export_card._without_query({"a": request, "b": text})
        self.assertEqual([[]], found["a"].pop("query").tolist())
        self.assertEqual([b""], found["b"].pop("query").tolist())
        self.assertEqual(request["titles"].tolist(), [[b"Jan Novak", b""]])
        self.assertIs(request["texts"], found["a"]["texts"])
        self.assertEqual({"text": text["text"]}, found["b"])

    def test_a_card_may_be_changed_and_replaced(self):
        path = self.path("copy")
        shutil.copytree(self.path_of("bfloat16"), path)
        with open(os.path.join(path, "README.md"), "a") as stream:
            stream.write("More.\n")
        exported.check_files(path, exported.read_metadata(path))
        self.assertEqual({1: path}, exported.find_versions(path))
        own_files.check(path)

    def test_a_fall_of_the_metric_is_refused(self):
        found = evaluate.Rounded(
            {"float32": {"accuracy": 0.5}, "int8": {"accuracy": 0.4}},
            *("accuracy", False, 9),
        )
        output = self.path("refused")
        with (
            mock.patch.object(evaluate, "evaluate_rounded", return_value=found),
            self.assertRaisesRegex(UserError, "from 0.5 .float32. to 0.4"),
        ):
            self.export(
                "int8", output, validation_data=self.records, tolerance=0.05
            )
        with self.assertRaisesRegex(UserError, "`tolerance` is 1.0, but"):
            self.export("int8", output, tolerance=1.0)
        self.assertEmpty(os.listdir(self.directory))

    def test_only_the_best_directory_has_selected_checkpoints(self):
        self.assertNotIn("selected", self.read_card("int8").text)
        run = self.path("run")
        for path, expected in (
            ("run/best_ckpt/best_ckpt-1", True),
            ("run/ckpt-1", False),
            ("other/best_ckpt/best_ckpt-1", False),
        ):
            found = export_card._is_best(self.path(path), f"{run}/")
            self.assertEqual(expected, found, path)

    def test_measuring_a_part_of_the_data(self):
        found = evaluate.evaluate_rounded(
            evaluate.Options(
                model_dir=self.run_dir,
                validation_data=self.records,
                params_override={"trainer.validation_steps": 1},
            ),
            kinds=["float32"],
        )
        self.assertIsNone(found.num_examples)
        # The metrics of exports are not in the run's TensorBoard log.
        self.assertNotIn("validation", os.listdir(self.run_dir))

    def test_a_checkpoint_of_another_run(self):
        shutil.copytree(self.run_dir, run := self.path("run"))
        runs.save_validation({"accuracy": 0.5}, 1, run)
        for checkpoint, is_own in ((run, True), (self.run_dir, False)):
            output = self.path(f"exported_{is_own}")
            self.export("float32", output, model_dir=run, checkpoint=checkpoint)
            with open(os.path.join(output, "README.md")) as stream:
                text = stream.read()
            self.assertIn("training steps: 1", text)
            for part in ("| accuracy | 0.5 |", "data: 9 exam", "1, each of 3"):
                self.assertEqual(is_own, part in text, part)

    def test_training_records_that_are_gone(self):
        note = runs.read(self.run_dir)
        for path, records, expected in (
            (self.records, note["records"], 9),
            (self.path("none"), note["records"], None),
            (
                self.records,
                {**note["records"], "vocab_fingerprint": "other"},
                None,
            ),
            (self.records, None, None),
            (None, note["records"], None),
        ):
            params = {"task": {"train_data": {"input_path": path}}}
            found = export_card._num_examples(params, {"records": records})
            self.assertEqual(expected, found)

    def test_lengths(self):
        def describe(lengths, reads_segments=False, rows_at_once=None):
            return export_card._describe_length(
                types.SimpleNamespace(
                    task_model=types.SimpleNamespace(lengths=lambda: lengths),
                    spec=types.SimpleNamespace(reads_segments=reads_segments),
                    preprocessor=types.SimpleNamespace(
                        rows_at_once=rows_at_once
                    ),
                )
            )

        lengths = {"long_length": 4096, "global_length": 230}
        self.assertIn("at most 4,096 tokens of text", describe(lengths))
        self.assertIn("windows of 4,096", describe(lengths, rows_at_once=4))
        self.assertIn(
            "segments of 512 tokens", describe({"block_length": 512}, True, 4)
        )


if __name__ == "__main__":
    tf.test.main()
