import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import EtcConfig
from etcmodel.serving import signatures as signatures_lib
from testing import toy_task as toy
from testing.toy_task import make_preprocessor


class ReadInPartsTest(tf.test.TestCase, parameterized.TestCase):
    def _outputs(self, inputs):
        """Returns a scalar, a vector and a matrix for each row."""
        first, second = inputs["first"], inputs["second"]
        # [rows, 3, 2]
        matrix = tf.cast(second[..., tf.newaxis], tf.float32) * [1.0, 10.0]
        self.rows.append(tf.shape(first)[0])
        return {
            "scalar": tf.reduce_sum(first, axis=1),
            "vector": first + 1.0,
            "matrix": matrix + tf.reduce_max(first, 1)[:, None, None],
        }

    @parameterized.product(rows=(0, 1, 4, 11), known=(True, False))
    def test_equals_one_call(self, rows, known):
        rng = np.random.default_rng(rows)
        inputs = {
            "first": tf.constant(rng.normal(size=[rows, 5]), tf.float32),
            "second": tf.constant(rng.integers(0, 9, [rows, 3]), tf.int32),
        }
        self.rows = []
        expected = self._outputs(inputs)
        spec = {
            name: tf.TensorSpec(x.shape if known else [None, None], x.dtype)
            for name, x in inputs.items()
        }

        @tf.function(input_signature=[spec], autograph=False)
        def in_parts(inputs):
            return signatures_lib.run_in_parts(self._outputs, inputs, 4)

        actual = in_parts(inputs)
        self.assertEqual(set(expected), set(actual))
        for name, value in expected.items():
            self.assertAllEqual(value, actual[name])

    def test_last_part_is_not_padded(self):
        """The last call gets only the rows that are left."""

        def outputs(inputs):
            rows = tf.shape(inputs["x"])[0]
            return {"y": tf.fill([rows], rows)}

        inputs = {"x": tf.zeros([6, 1])}
        made = signatures_lib.run_in_parts(outputs, inputs, 4)
        self.assertAllEqual([4, 4, 4, 4, 2, 2], made["y"])
        # Rows between two stops stay together.
        made = signatures_lib.run_in_parts(
            outputs, inputs, 4, tf.constant([3, 5, 6])
        )
        self.assertAllEqual([3] * 6, made["y"])
        made = signatures_lib.run_in_parts(outputs, inputs, None)
        self.assertAllEqual([6] * 6, made["y"])


class ServingModuleTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.builder = make_preprocessor(tempfile.mkdtemp())
        cls.task_model = toy.TASK.make_model(
            options=toy.Options(threshold=-1e3)
        )
        config = EtcConfig.from_preset(
            "tiny",
            vocab_size=cls.builder.tokenizer.vocab_size,
            num_hidden_layers=1,
            initializer_range=0.3,
        )
        cls.model = cls.task_model.build(config)
        module, cls.requests = signatures_lib.make_serving_module(
            cls.model, cls.builder, cls.task_model
        )
        cls.signatures = module.signatures()

    def _serve(self, texts):
        return self.signatures["serving_default"](text=tf.constant(texts))

    def test_answers_with_the_best_word_of_all_windows(self):
        text = "a bb ccc dddd eeeee a bb a dddd"
        outputs = self._serve(["bb", text, ""])
        # Each word has the logits that the model gives in the word's window.
        made = self.builder(tf.constant([text]))
        given = {**made.layout.features, **made.layout.values}
        inputs = {name: given[name] for name in self.model.input}
        logits = self.model(inputs)["logits"].numpy()
        words = text.split()
        flat = [logits[i // 4, i % 4] for i in range(len(words))]
        self.assertEqual(
            [b"bb", words[np.argmax(flat)].encode(), b""],
            outputs["answer"].numpy().tolist(),
        )
        self.assertAllClose(max(flat), outputs["logit"][1], 1e-5, 1e-5)

    def test_counts_truncated_tokens(self):
        self.assertAllEqual([0, 0], self._serve(["a", ""])["tokens_cut"])

    def test_error_of_wrong_rank(self):
        for signature, name, value, expected in (
            ("serving_default", "text", [["a"]], r"\(records\).*\] \[1 1\]"),
            ("serving_default", "text", "a", r"\(records\), .* \[\]"),
            (
                "serialized_examples",
                "examples",
                [["a"]],
                r"\(examples\), such as \[",
            ),
        ):
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, f"The input {name} .*{expected}"
            ):
                self.signatures[signature](**{name: tf.constant(value)})
        inputs = {
            name: tf.constant(x)
            for name, x in self.requests["features"].items()
        }
        name = min(inputs)
        inputs[name] = inputs[name][0]
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError,
            rf"The input {name} must .*\(records, .*\), such as \[\[0\]\]",
        ):
            self.signatures["features"](**inputs)

    def test_requests(self):
        """The warm-up request is the same for every signature."""
        self.assertEqual(set(self.signatures), set(self.requests))
        outputs = {
            name: self.signatures[name](
                **{x: tf.constant(y) for x, y in inputs.items()}
            )
            for name, inputs in self.requests.items()
        }
        features, stored = outputs["features"], outputs["serialized_examples"]
        # The stored example is only the first of two windows, so its answer
        # differs.
        self.assertEqual([1, 4], features["logits"].shape)
        self.assertAllClose(features["logits"], stored["logits"], 1e-5, 1e-5)
        best = np.argmax(features["logits"][0])
        words = self.requests["serving_default"]["text"][0].split()
        self.assertEqual([words[best]], stored["answer"].numpy().tolist())
        self.assertEqual([1], outputs["serving_default"]["answer"].shape)


if __name__ == "__main__":
    tf.test.main()
