import json
import os
import shutil
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.models import EtcConfig
from etcmodel.serving import converted
from etcmodel.serving import signatures
from testing import toy_task as toy

# Nine words fill three windows of up to four words.
_TEXT = "bb ccc dddd a eeeee a bb bb ccc"


class ConvertedTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.preprocessor = toy.make_preprocessor(cls.root)
        cls.vocab_file = os.path.join(cls.root, "vocab.txt")
        cls.task_model = toy.TASK.make_model(
            # Keras keeps the scale as a constant of the graph.
            toy.ModelOptions(scale=2.0),
            toy.Options(),
            {"long_length": 4, "global_length": 2},
        )
        config = EtcConfig.from_preset(
            "tiny",
            vocab_size=cls.preprocessor.tokenizer.vocab_size,
            num_hidden_layers=1,
            initializer_range=0.3,
        )
        cls.model = cls.task_model.build(config, **cls.task_model.lengths())
        cls.litert = cls._export("litert")

    @classmethod
    def _export(cls, format, **options):
        output = os.path.join(cls.root, format)
        converted.export_converted(
            cls.model,
            cls.preprocessor,
            output,
            format=format,
            metadata={"task": "toy"},
            vocab_file=cls.vocab_file,
            **options,
        )
        return output

    def _check_outputs(self, directory):
        """Compares the logits of a text with the logits of `features`."""
        loaded = tf.saved_model.load(os.path.join(directory, "preprocessor"))
        made = loaded.signatures["serving_default"](
            text=tf.constant([_TEXT, "a"])
        )
        self.assertAllEqual([0, 0, 0, 1], made["record"])
        self.assertAllEqual([0, 0], made["tokens_cut"])
        module = signatures.make_module(
            self.model, self.preprocessor, self.task_model
        )
        (features,) = module.signatures(["features"]).values()
        model = converted.ConvertedModel(directory, num_threads=1)
        for row in range(4):
            inputs = {
                name: made[name][row : row + 1].numpy()
                for name in model.metadata["inputs"]
            }
            expected = features(
                **{
                    name: tf.constant(
                        x.astype(np.int64) if x.dtype == np.int32 else x
                    )
                    for name, x in inputs.items()
                }
            )
            self.assertEqual(["logits"], list(expected))
            self.assertGreater(np.std(expected["logits"]), 0.01)
            self.assertAllClose(expected, model(inputs), 0, 1e-3)

    def test_litert(self):
        self._check_outputs(self.litert)

    def test_onnx(self):
        self._check_outputs(self._export("onnx"))

    def test_description(self):
        with open(os.path.join(self.litert, "etcmodel.json")) as stream:
            noted = json.load(stream)
        self.assertEqual(
            ("toy", "litert", "model.tflite", "vocab.txt"),
            tuple(noted[x] for x in ("task", "format", "file", "vocabulary")),
        )
        self.assertEqual(
            {"shape": [1, 4], "dtype": "int32"},
            noted["inputs"]["long_token_ids"],
        )
        self.assertEqual(
            {"shape": [1, 4, 2], "dtype": "float32"}, noted["inputs"]["looks"]
        )
        self.assertEqual(
            {"logits": {"shape": [1, 4], "dtype": "float32"}}, noted["outputs"]
        )
        self.assertEqual(
            ("wordpiece", True, 7),
            (
                noted["tokenizer"]["kind"],
                noted["tokenizer"]["lower_case"],
                noted["tokenizer"]["special_ids"]["cls"],
            ),
        )
        self.assertLess(noted["difference"], 1e-4)
        with (
            open(os.path.join(self.litert, "vocab.txt")) as copied,
            open(self.vocab_file) as original,
        ):
            self.assertEqual(original.read(), copied.read())

    def test_inputs_that_do_not_fit(self):
        model = converted.ConvertedModel(self.litert)
        inputs = signatures.static_request(self.preprocessor)
        ids = inputs["long_token_ids"]
        for changed, message in (
            (
                ids[:, :3],
                r"long_token_ids is int32 \[1, 3\], .* int32 \[1, 4\]",
            ),
            (ids.astype(np.int64), r"is int64 \[1, 4\], expected int32"),
            (None, "The input long_token_ids is missing"),
        ):
            given = {**inputs, "long_token_ids": changed}
            if changed is None:
                del given["long_token_ids"]
            with self.assertRaisesRegex(UserError, message):
                model(given)

    def test_damaged_file(self):
        directory = os.path.join(self.root, "damaged")
        shutil.copytree(self.litert, directory)
        with open(os.path.join(directory, "model.tflite"), "r+b") as stream:
            stream.truncate(9)
        with self.assertRaisesRegex(UserError, "model.tflite cannot be read: "):
            converted.ConvertedModel(directory)

    @parameterized.parameters(0.002, np.nan)
    def test_writes_no_model_whose_outputs_differ(self, error):
        with open(os.path.join(self.litert, "model.tflite"), "rb") as stream:
            content = stream.read()
        inputs = signatures.static_request(self.preprocessor)
        outputs = converted.ConvertedModel(self.litert)(inputs)
        outputs = {name: x + error for name, x in outputs.items()}
        before = sorted(os.listdir(self.root))
        with (
            mock.patch.object(
                converted, "convert", lambda *args: (content, outputs)
            ),
            self.assertRaisesRegex(
                UserError, "`format=litert`, the outputs .* differ .* 0.001 is"
            ),
        ):
            self._export("litert", overwrite=True)
        self.assertEqual(before, sorted(os.listdir(self.root)))
        # The existing model is unchanged.
        converted.ConvertedModel(self.litert)(inputs)

    def test_operation_that_litert_lacks(self):
        def count(inputs, training):
            del training
            ids = inputs["ids"]
            weights = tf.ones_like(ids, tf.float32)
            return {"counts": tf.math.bincount(ids, weights, 3, 3, axis=-1)}

        model = mock.Mock(side_effect=count, variables=[])
        with self.assertRaisesRegex(
            UserError, "with `format=litert`: TF Select ops: DenseBincount"
        ):
            converted.convert(
                model, {"ids": np.array([[1, 2]], np.int32)}, "litert"
            )


if __name__ == "__main__":
    tf.test.main()
