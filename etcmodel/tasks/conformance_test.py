"""Tests every task from data file to predictions, SavedModel and score.

Each task runs once through the commands, with generated records and a model
that was trained for two steps, so that its answers are almost random.
"""

import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

import msgspec
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import etcmodel
from etcmodel import checkpoints
from etcmodel import models
from etcmodel.checkpoints import files
from etcmodel.engine import predict
from etcmodel.pipeline import example_schema
from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.task_model import to_predictions
from etcmodel.readers import tables
from etcmodel.readers.row_formats import RowFormat
from etcmodel.serving import answers as answers_lib
from etcmodel.serving import batching
from etcmodel.serving import converted
from etcmodel.serving import exported
from etcmodel.serving import rest
from etcmodel.tasks import registry
from etcmodel.training import runs
from etcmodel.weight_paths import get_weight_paths
from testing import helpers
from testing import task_answers
from testing import task_runs
from testing.saved_models import names_of_stored_gradients
from testing.saved_models import read_warmup_requests
from testing.saved_models import stored_functions

_ROOT = pathlib.Path(etcmodel.__file__).parents[1]
# Padding of inputs by dtype; -1 for other dtypes.
_NOTHING = {tf.string: b"", tf.bool: False}

# Outputs that exist only for raw requests, not for stored features.
_OF_REQUESTS = {"tokens_cut", "is_refused"}


def _read(encoder, inputs):
    """Encodes the inputs of a question answering model."""
    of_encoder = {x: y for x, y in inputs.items() if x != "prefix_length"}
    return encoder(**of_encoder).final_hidden_states


class TasksTest(task_answers.TaskTestCase):
    @parameterized.parameters(*task_runs.TASKS)
    def test_trains_and_measures(self, task):
        run = task_runs.run_of(task)
        spec = registry.get(task)
        names = os.listdir(run.model_dir)
        self.assertContainsSubset(
            ["best_ckpt", "etcmodel.json", "params.yaml", "vocab.txt"], names
        )
        records = runs.read(run.model_dir)["records"]
        is_tuned = spec.tuned is not None and spec.tuned.is_used(
            records["preprocessing_config"]
        )
        self.assertEqual(is_tuned, "tuned.json" in names)
        metrics = task_runs.metrics_of(task)
        self.assertEqual(run.steps, metrics["step"])
        best = spec.recipe.get("best_metric")
        self.assertIn(best or "mlm_accuracy", metrics)
        for name, value in metrics.items():
            self.assertTrue(np.isfinite(value), name)

    def test_encoders_of_runs_are_built_under_keras_3(self):
        """Runs the code of docs/encoders.md; checks it with trained models."""
        names = ["wikihop", "openkp", "read_twice_hotpotqa"]
        (lines,) = re.findall(
            r"(?s)## Weights.*?```\n(from etcmodel.*?)```",
            (_ROOT / "docs" / "encoders.md").read_text("utf-8"),
        )
        expected = {}
        for name in names:
            run, folder = (
                task_runs.run_of(name),
                os.path.join(self.get_temp_dir(), name),
            )
            shutil.copytree(run.model_dir, os.path.join(folder, "runs", "1"))
            task, model = run.trained
            data = task.task_config.validation_data
            ((inputs, _),) = task.build_inputs(data).take(1)
            np.savez(os.path.join(folder, "inputs.npz"), **inputs)
            encoder = model.checkpoint_items["encoder"]
            expected[name] = (
                encoder(inputs)["long_output"]
                if name not in task_runs.READ_TWICE
                else _read(encoder, inputs)
            )
        done = subprocess.run(
            [sys.executable, "-c", task_runs.BUILD_FROM_RUN, lines, *names],
            cwd=self.get_temp_dir(),
            env={
                **os.environ,
                "PYTHONPATH": str(_ROOT),
                "TF_USE_LEGACY_KERAS": "0",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(0, done.returncode, done.stderr)
        for name in names:
            path = os.path.join(self.get_temp_dir(), name, "output.npy")
            self.assertAllClose(expected[name], np.load(path), 1e-4, 1e-4)

    @parameterized.parameters(*task_runs.TASKS)
    def test_encoder_built_from_a_run_has_its_weights(self, task):
        run = task_runs.run_of(task)
        if task in task_runs.READ_TWICE:
            build, config = models.build_read_twice_encoder, "ReadTwiceConfig"
        else:
            build, config = models.build_encoder, "EtcConfig"
        encoder = build(
            getattr(models, config).from_run(run.model_dir),
            **models.encoder_options(run.model_dir),
        )
        checkpoints.load_checkpoint(encoder, run.model_dir)
        encoder = files.find_encoder(encoder)
        _, model = run.trained
        own = files.find_encoder(model.checkpoint_items["encoder"])
        self.assertIs(type(own), type(encoder))
        self.assertEqual(own.get_config(), encoder.get_config())
        expected, actual = map(get_weight_paths, (own, encoder))
        self.assertEqual(set(expected), set(actual))
        for name, weight in expected.items():
            self.assertAllEqual(weight, actual[name], name)

    @parameterized.parameters(*task_runs.WITH_ANSWERS)
    def test_evaluate_and_predict_print_the_same_metrics(self, task):
        run = task_runs.run_of(task)
        metrics = task_runs.metrics_of(task)
        out, predictions = run.predict(run, run.input, "--batch_size=4")
        printed = dict(
            line.split(": ")
            for line in out.splitlines()
            if line.count(": ") == 1
        )
        for name, value in printed.items():
            # Scores, and thus thresholds, may differ slightly between batches.
            rtol = 1e-5 if name.endswith("_threshold") else 0
            expected = float(f"{metrics[name]:.6g}")
            self.assertAllClose(expected, float(value), rtol, rtol / 10, name)
        self.assertIn(registry.get(task).recipe["best_metric"], printed)
        text = json.dumps(predictions)
        for record in self.records(task):
            self.assertIn(record.id, text)

    @parameterized.parameters(*task_runs.WITH_ANSWERS)
    def test_load_in_python(self, task):
        """Loads a run and a SavedModel; answers keep the order of records."""
        run = task_runs.run_of(task)
        self.assertEqual(task, etcmodel.load(run.model_dir).task)
        rows = [
            task_answers.preprocessor_of(task).raw(x)
            for x in self.records(task)
        ]
        if isinstance(registry.get(task).dataset.FORMAT, RowFormat):
            rows = [x for _, x in tables.read_rows(run.input)]
        loaded = mock.Mock(signatures=task_runs.load_of(task)[0])
        with mock.patch.object(
            answers_lib, "load_saved_model", lambda _: loaded
        ):
            model = etcmodel.load(run.saved_model)
            found = model.predict(rows, 4, progress=False)
            alone = [model.predict([x], progress=False)[0] for x in rows]

        def rounded(values):
            number = r"\d+\.\d+(e-\d+)?"
            return re.sub(number, lambda x: f"{float(x[0]):.3f}", str(values))

        self.assertEqual(rounded(alone), rounded(found))

    def test_attention_map(self):
        """Writes a page with the attention of a run's model."""
        run = task_runs.run_of("answer")
        output = run.path("map.html")
        printed = run.run_command(
            "inspect",
            f"--model_dir={run.model_dir}",
            f"--input={run.input}",
            f"--output={output}",
        )
        self.assertRegex(printed, r"Predicted answer: +answer: .*\nGold answer")
        self.assertIn(f"The page is in {output}.", printed)
        with open(output, encoding="utf-8") as stream:
            page = stream.read()
        _, _, data = page.partition('id="data">')
        data = json.loads(data.partition("</script>")[0])
        self.assertContainsSubset(["Where", "is", "Jan"], data["texts"])
        self.assertEqual("Layer 1", data["layers"][0]["label"])

    def test_packed_segments_have_the_answers_of_raw_text(self):
        for task in {*task_runs.READ_TWICE}.intersection(
            task_runs.WITH_ANSWERS
        ):
            files = tfrecords.find_files(task_runs.run_of(task).records)
            signatures, *_ = task_runs.load_of(task)
            outputs = signatures["serialized_examples"](
                examples=tf.stack([*tf.data.TFRecordDataset(files, "GZIP")])
            )
            stored = {name: x.numpy() for name, x in outputs.items()}
            names = [x.decode() for x in stored.pop("example_id")]
            records = self.records(task)
            self.assertSameElements([x.id for x in records], names)
            served = self.serve(task, records)
            del served["tokens_cut"]
            rows = [names.index(x.id) for x in records]
            self.check_same(
                served, {name: x[rows] for name, x in stored.items()}
            )

    @parameterized.parameters(
        *(x for x in task_runs.WITH_ANSWERS if x not in task_runs.READ_TWICE)
    )
    def test_stored_examples_have_the_answers_of_raw_text(self, task):
        fields = task_answers.preprocessor_of(task).SCHEMA
        signatures, task_model, _ = task_runs.load_of(task)
        records = self.records(task)
        stored = {record.id: [] for record in records}
        directory = task_runs.run_of(task).records
        for file in tfrecords.find_files(directory):
            for example in tf.data.TFRecordDataset(file, "GZIP"):
                parsed = tf.train.Example.FromString(example.numpy())
                name = parsed.features.feature["example_id"]
                name = name.bytes_list.value[0].decode()
                stored[name].append(example)
        sizes = exported.read_metadata(task_runs.run_of(task).saved_model)[
            "preprocessing_config"
        ]
        roles = ("context", "decoding", "text")
        for record in records:
            examples = tf.stack(stored[record.id])
            _, values = fields.parse(examples, sizes, roles)
            order = np.argsort(values["window"])
            examples = tf.gather(examples, order)
            made, values = fields.parse(examples, sizes, roles)
            outputs = signatures["serialized_examples"](examples=examples)
            chosen = task_model.select_candidates(outputs, made, values)
            text = {
                name: values[name][:1]
                for name in fields.names(example_schema.TEXT)
            }
            answers = task_model.decode(
                chosen, tf.zeros_like(values["window"]), text
            )
            served = self.serve(task, [record])
            served = {x: y for x, y in served.items() if x not in _OF_REQUESTS}
            self.check_same(
                served, {name: x.numpy() for name, x in answers.items()}
            )

    @parameterized.parameters(*task_runs.WITH_ANSWERS)
    def test_an_answer_does_not_depend_on_its_batch(self, task):
        _, task_model, _ = task_runs.load_of(task)
        records = self.records(task)
        preprocessor = task_answers.preprocessor_of(task)
        texts = [preprocessor.raw(record) for record in records]
        together = self.serve(task, records)
        requests = [preprocessor.raw_batch([record]) for record in records]
        joined = batching.join(requests)
        for name, value in preprocessor.raw_batch(records).items():
            self.assertAllEqual(value, joined[name], name)
        path = task_runs.run_of(task).saved_model
        axes = exported.read_metadata(path)["axes"]["serving_default"]
        parts = batching.split(together, requests, batching.Axes(**axes))
        for i, record in enumerate(records):
            alone = self.serve(task, [record])
            self.check_same(alone, parts[i])
            collected = [
                msgspec.to_builtins(
                    to_predictions(task_model, answers, texts[i : i + 1])
                )
                for answers in (
                    alone,
                    {name: x[i : i + 1] for name, x in together.items()},
                )
            ]
            # Padding changes the length of sums, and thus their rounding.
            tf.nest.map_structure(
                lambda x, y: (
                    self.assertAllClose(x, y)
                    if isinstance(x, float)
                    else self.assertEqual(x, y)
                ),
                *collected,
            )

    @parameterized.parameters("classify", "read_twice_narrativeqa")
    def test_litert_has_the_logits_of_features(self, task):
        run, record = task_runs.run_of(task), self.records(task)[-1]
        output = run.path("litert")
        run.run_command(
            "export",
            f"--model_dir={run.model_dir}",
            f"--output_dir={output}",
            "--format=litert",
        )
        model = converted.ConvertedModel(output)
        loaded = tf.saved_model.load(os.path.join(output, "preprocessor"))
        raw = task_answers.preprocessor_of(task).raw_batch([record])
        made = loaded.signatures["serving_default"](
            **{name: tf.constant(x) for name, x in raw.items()}
        )
        self.assertAllEqual(0 * made["record"], made["record"])
        inputs = {}
        for name, noted in model.metadata["inputs"].items():
            # Takes one window, or all segments and segments of padding.
            rows = noted["shape"][0]
            x = made[name][:rows].numpy()
            padding = [(0, rows - len(x))] + [(0, 0)] * (x.ndim - 1)
            inputs[name] = np.pad(x, padding)
        features = task_runs.load_of(task)[0]["features"]
        expected = features(
            **{
                name: tf.constant(x, tf.int64 if x.dtype == np.int32 else None)
                for name, x in inputs.items()
            }
        )
        actual = model(inputs)
        self.assertEqual(set(expected), set(actual))
        for name, x in expected.items():
            self.assertGreater(np.std(x), 0, name)
            self.assertAllClose(x, actual[name], 0, 1e-3, name)
        if task == "classify":
            page = (_ROOT / "docs/converted_models.md").read_text("utf-8")
            (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
            values = {}
            exec(code.replace('"litert/', f'"{output}/'), values)
            self.assertEqual((1, 3), values["outputs"]["logits"].shape)

    @parameterized.parameters(*task_runs.WITH_ANSWERS)
    def test_empty_batch(self, task):
        preprocessor = task_answers.preprocessor_of(task)
        outputs = self.ask(
            task,
            {
                name: tf.zeros([x or 0 for x in spec.shape], spec.dtype)
                for name, spec in preprocessor.INPUTS.items()
            },
        )
        for name, value in outputs.items():
            self.assertEqual(0, value.shape[0], name)

    @parameterized.parameters(*task_runs.WITH_ANSWERS)
    def test_empty_text(self, task):
        preprocessor = task_answers.preprocessor_of(task)
        for size in (0, 2):
            outputs = self.ask(
                task,
                {
                    name: tf.fill(
                        [1, *(x or size for x in spec.shape[1:])],
                        tf.constant(_NOTHING.get(spec.dtype, -1), spec.dtype),
                    )
                    for name, spec in preprocessor.INPUTS.items()
                },
            )
            if "answer_type" in outputs:
                is_empty = outputs["answer"] == b""
                self.assertAllEqual(is_empty, outputs["answer_type"] == 3)
            for name, value in outputs.items():
                self.assertEqual(1, value.shape[0], name)
                if value.dtype.kind == "f":
                    self.assertTrue(np.isfinite(value).all(), name)

    @parameterized.parameters(*task_runs.WITH_ANSWERS)
    def test_empty_text_does_not_change_other_answers(self, task):
        preprocessor = task_answers.preprocessor_of(task)
        inputs = preprocessor.raw_batch(self.records(task)[:2])
        between = {
            name: np.insert(
                x, 1, _NOTHING.get(preprocessor.INPUTS[name].dtype, -1), axis=0
            )
            for name, x in inputs.items()
        }
        outputs = self.ask(task, between)
        self.check_same(
            self.ask(task, inputs),
            {name: x[[0, 2]] for name, x in outputs.items()},
        )

    @parameterized.parameters(*task_runs.WITH_ANSWERS)
    def test_inputs_that_differ_in_size(self, task):
        """The error names the inputs, their shared axis, and the sizes."""
        signatures, *_ = task_runs.load_of(task)
        for signature, request, same in (
            (
                "serving_default",
                task_answers.preprocessor_of(task).REQUEST,
                task_answers.SAME_SIZES.get(task, {}),
            ),
            ("features", *task_answers.features_request(task)),
        ):
            request = {name: np.asarray(x) for name, x in request.items()}
            for axis, what, names in (
                (0, "segments" if "block_ids" in request else "records", None),
                *((1, what, names) for what, names in same.items()),
            ):
                for name in names or request:
                    x = request[name]
                    longer = {name: np.concatenate([x, x], axis)}
                    call = signatures[signature]
                    with self.assertRaisesRegex(
                        tf.errors.InvalidArgumentError,
                        rf"(?s)\b{name}\b.*differ in their number of {what}:"
                        rf".*\b{2 * x.shape[axis]}\b",
                    ) as caught:
                        call(
                            **{
                                key: tf.constant(value)
                                for key, value in (request | longer).items()
                            }
                        )
                    others = set(request) - {name}
                    self.assertTrue(
                        any(x in str(caught.exception) for x in others)
                    )

    @parameterized.parameters(*task_runs.WITH_ANSWERS)
    def test_documented_request_has_the_documented_outputs(self, task):
        page = (_ROOT / "docs" / "serving.md").read_text("utf-8")
        (section,) = (
            x
            for x in page.split("\n## ")
            if f"`{task}`" in x.partition("\n")[0]
        )
        request, answer = (
            json.loads(x)
            for x in re.findall(r"```json\n(.*?)```", section, re.DOTALL)
        )
        inputs = task_answers.preprocessor_of(task).INPUTS
        (instance,), (expected,) = request["instances"], answer["predictions"]
        outputs = self.ask(
            task,
            {
                name: np.array([x], inputs[name].dtype.as_numpy_dtype)
                for name, x in instance.items()
            },
        )
        if task == "read_twice_narrativeqa":
            del expected["answer_type"]
        self.assertEqual(set(expected), set(outputs))
        kinds = {str: "O", int: "i", float: "f", bool: "b"}
        for name, value in expected.items():
            shape = np.shape(value)
            self.assertEqual((1, *shape), outputs[name].shape, name)
            kind = kinds[type(np.array(value, object).flat[0])]
            self.assertEqual(kind, outputs[name].dtype.kind, name)
        tables = re.findall(
            r"^\| (?:in|out)put \|.*?\n\n", section, re.DOTALL | re.MULTILINE
        )
        for table, names in zip(tables, (instance, outputs), strict=True):
            cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
            listed = {x for cell in cells for x in re.findall(r"`(\w+)`", cell)}
            self.assertLessEqual(listed - {"answer_type"}, set(names))
            self.assertLessEqual(set(names), listed)

    @parameterized.parameters(*task_runs.WITH_ANSWERS)
    def test_plain_text_has_the_answers_of_a_record(self, task):
        preprocessor, spec = (
            task_answers.preprocessor_of(task),
            registry.get(task),
        )
        given = {x: y[0].decode() for x, y in preprocessor.TEXT_REQUEST.items()}
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(folder, "a.md")
        pathlib.Path(path).write_text(given.pop("text"), "utf-8")
        if "candidates" in given:
            given["candidate"] = given.pop("candidates").split("\n")
        options = predict.Options(
            saved_model=task_runs.run_of(task).saved_model,
            input=path,
            output=os.path.join(folder, "out"),
            **given,
        )
        predict.predict(options)
        _, task_model, _ = task_runs.load_of(task)
        request = preprocessor.REQUEST
        parts = {name: x[0] for name, x in request.items()}
        (expected,) = to_predictions(
            task_model, self.ask(task, request), [parts]
        )
        stream = io.StringIO()
        spec.dataset.write_predictions({"a.md": expected}, stream)
        with open(options.output, encoding="utf-8") as written:
            self.assertEqual(stream.getvalue(), written.read())

    def test_documented_request_of_one_string(self):
        """Sends the JSON of docs/serving.md to `text`; checks the outputs."""
        page = (_ROOT / "docs" / "serving.md").read_text("utf-8")
        sections = page.split("\n## ")
        (section,) = (x for x in sections if x.startswith("One string"))
        (body,) = re.findall(r"```json\n(.*?)```", section, re.DOTALL)
        signatures, *_ = task_runs.load_of("answer")
        call = signatures["text"]
        specs = {"text": call.structured_input_signature[1]}
        request = rest.parse(body.encode(), specs)
        outputs = call(**{x: tf.constant(y) for x, y in request.inputs.items()})
        self.assertEqual(
            {*signatures["serving_default"].structured_outputs}, {*outputs}
        )
        self.assertEqual(0, outputs["unit_paragraphs"].numpy()[0, 0])

    def test_example_in_python_runs(self):
        text = (_ROOT / "docs/serving.md").read_text("utf-8")
        (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        path = task_runs.run_of("hotpotqa").saved_model
        values = {}
        exec(example.replace('"saved_model"', repr(path)), values)
        self.assertEqual((1,), values["output"]["answer"].shape)

    @parameterized.parameters(*task_runs.WITH_ANSWERS)
    def test_serves_without_this_package(self, task):
        """A program without the package gets equal answers; no op is Python."""
        records = self.records(task)[:2]
        loaded, served, ops = helpers.call_in_fresh_process(
            helpers.serve_elsewhere,
            task_runs.run_of(task).saved_model,
            task_answers.preprocessor_of(task).raw_batch(records),
        )
        expected = self.serve(task, records)
        self.check_same(expected, loaded)
        self.check_same(expected, served)
        # Ops of TensorFlow Text, which a server must link.
        expected = ["FastWordpieceTokenizeWithOffsets"]
        if task in task_runs.READ_TWICE:
            # This op finds mentions.
            expected.append("RegexSplitWithOffsets")
        self.assertEqual(
            expected, sorted(op for op in ops if not hasattr(tf.raw_ops, op))
        )
        for op in ops:
            self.assertNotIn("PyFunc", op)

    @parameterized.parameters(*task_runs.WITH_ANSWERS)
    def test_stores_no_gradients_and_needs_no_xla(self, task):
        """Stored gradients would cause warnings when the model is loaded."""
        path = task_runs.run_of(task).saved_model
        self.assertEmpty(names_of_stored_gradients(path))
        for function in stored_functions(path):
            self.assertFalse(function.attr["_XlaMustCompile"].b)

    @parameterized.parameters(*task_runs.WITH_ANSWERS)
    def test_warmup_requests(self, task):
        """All signatures get the same record, so all answers are equal."""
        signatures, *_ = task_runs.load_of(task)
        requests = dict(
            read_warmup_requests(task_runs.run_of(task).saved_model)
        )
        self.assertEqual(
            {"serving_default", "serialized_examples", "features", "text"},
            set(requests),
        )
        names = ["serving_default", "serialized_examples", "features", "text"]
        answers, stored, logits, of_text = (
            signatures[name](
                **{x: tf.constant(y) for x, y in requests[name].items()}
            )
            for name in names
        )
        # HotpotQA's sentence begins with a space in the request alone.
        moved = {"answer_start", "answer_end"} if task == "hotpotqa" else set()
        self.check_same(
            *(
                {name: x[name].numpy() for name in answers.keys() - moved}
                for x in (answers, of_text)
            )
        )
        self.assertAllEqual([0], answers["tokens_cut"])
        answers = {x: y for x, y in answers.items() if x not in _OF_REQUESTS}
        if task in task_runs.READ_TWICE:
            # This signature returns answers instead of logits.
            logits = {"example_id": tf.constant([""])}
        self.check_same(
            {name: x.numpy() for name, x in {**logits, **answers}.items()},
            {name: x.numpy() for name, x in stored.items()},
        )


if __name__ == "__main__":
    tf.test.main()
