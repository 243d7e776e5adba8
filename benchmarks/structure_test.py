"""Tests of the structure benchmark: it runs, and changes what it says."""

import contextlib
import io
import unittest.mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks import program
from benchmarks import structure
from etcmodel.demo import corpus
from etcmodel.demo import demo


class StructureTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        tiny = dict(hidden_size=8, intermediate_size=8, num_attention_heads=2)
        self.enter_context(unittest.mock.patch.dict(demo.ENCODER, tiny))
        # Features of a few records are not worth a trace.
        tf.config.run_functions_eagerly(True)
        self.addCleanup(tf.config.run_functions_eagerly, False)

    @parameterized.parameters(*corpus.QUESTION_KINDS)
    def test_data(self, kind):
        data, vocab_size = structure.make_data(kind, 200, 20, seed=3)
        self.assertGreater(vocab_size, 100)
        for split, number in (("train", 200), ("heldout", 20)):
            features, labels = data[split]
            records = corpus.make_records(number, kind, split, seed=3)
            right = [r["candidates"].index(r["answer"]) for r in records]
            self.assertAllEqual(labels, right)
            tokens = features["long_token_ids"]
            self.assertLen(tokens, number)
            # Nothing was cut: there is room left, and 4 documents end.
            for name in ("long_token_ids", "global_token_ids"):
                self.assertAllEqual(features[name][:, -1], np.zeros(number))
            ends = features["long_paragraph_breakpoints"]
            self.assertAllEqual(ends.sum(axis=1), [6 + 1 + 4] * number)
            self.assertLess(tokens.max(), vocab_size)

    def test_variants_differ_in_what_they_say(self):
        data, vocab_size = structure.make_data("fixed", 8, 2, seed=3)
        features, _ = data["heldout"]
        # Without links, nothing depends on them; in a flat sequence, neither
        # on what belongs to which paragraph.
        changes = {
            name: np.full_like(features[name], -1)
            for name in ("l2g_linked_ids", "long_paragraph_ids")
        }
        depends = {}
        demo.ENCODER["initializer_range"] = 0.5
        for variant in structure.VARIANTS:
            model = structure.make_model(variant, vocab_size, 2, 1e-3)
            expected = model(features)
            depends[variant] = {
                name
                for name, x in changes.items()
                if not np.allclose(
                    model({**features, name: x}), expected, atol=1e-6
                )
            }
        self.assertEqual(
            depends,
            {
                "full": set(changes),
                "no hard g2l": set(changes),
                "no links": {"long_paragraph_ids"},
                "flat": set(),
            },
        )

    def test_training(self):
        tf.config.run_functions_eagerly(False)
        data, vocab_size = structure.make_data("fixed", 8, 4, seed=3)
        row = structure.train(
            "no links", data, vocab_size, 0, num_layers=1, batch_size=4
        )
        # No time at all is up after the first step.
        self.assertEqual(row["steps"], 1)
        self.assertIsNone(row["solved_at"])
        self.assertIn(row["accuracy"], np.arange(5) / 4)

    def test_a_training_ends_when_nothing_is_left_to_learn(self):
        budget = structure.TimeBudget(1e6)
        budget.set_model(unittest.mock.Mock(stop_training=False))
        # Right from step 31 on: 24 of 25 steps at step 54.
        for i in range(1, 200):
            budget.on_train_batch_end(
                i, {"loss": 0.01 * (i < 90) + 0.015, "accuracy": i > 30}
            )
            if budget.model.stop_training:
                break
        self.assertEqual(54, budget.solved_at)
        # The mean of the losses of 25 steps, 13 of which are the higher ones.
        self.assertEqual(102, budget.steps)
        self.assertEqual(1.0, budget.accuracy)

    def test_rows(self):
        def train(variant, *args, **kwargs):
            return {"accuracy": {"full": 0.75, "no links": 0.5}[variant]}

        values = program.parse(
            structure.PROGRAM,
            *("--question_kinds=fixed", "--variants=full,no links"),
            *("--num_train=8", "--num_heldout=4"),
        )
        with (
            unittest.mock.patch.object(structure, "train", train),
            contextlib.redirect_stdout(io.StringIO()) as printed,
        ):
            rows = program.run(structure.PROGRAM, values)
        self.assertEqual(["full", "no links"], [x["variant"] for x in rows])
        self.assertIn("worth +25.0 points", printed.getvalue())


if __name__ == "__main__":
    tf.test.main()
