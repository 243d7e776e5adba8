"""Tests of the structure benchmark: it runs, and changes what it says."""

import json
import os
import unittest.mock

import numpy as np
import tensorflow as tf
from absl import app
from absl import flags
from absl.testing import parameterized

from benchmarks import structure
from etcmodel.demo import corpus
from etcmodel.demo import demo


class StructureTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*corpus.QUESTION_KINDS)
    def test_data(self, kind):
        data, vocab_size = structure.make_data(kind, 200, 20, seed=3)
        self.assertGreater(vocab_size, 100)
        for split, number in (("train", 200), ("heldout", 20)):
            features, labels = data[split]
            records = corpus.make_records(number, kind, split, seed=3)
            self.assertAllEqual(
                labels,
                [r["candidates"].index(r["answer"]) for r in records],
            )
            tokens = features["long_token_ids"]
            self.assertLen(tokens, number)
            # Nothing was cut: there is room left, and 4 documents end.
            self.assertAllEqual(tokens[:, -1], np.zeros(number))
            self.assertAllEqual(
                features["global_token_ids"][:, -1], np.zeros(number)
            )
            ends = features["long_paragraph_breakpoints"]
            self.assertAllEqual(ends.sum(axis=1), [6 + 1 + 4] * number)
            self.assertLess(tokens.max(), vocab_size)

    def test_variants_differ_in_what_they_say(self):
        data, vocab_size = structure.make_data("fixed", 8, 4, seed=3)
        features, _ = data["heldout"]
        changes = {
            "full": {},
            # Without links, nothing depends on them.
            "links": {
                "l2g_linked_ids": np.full_like(features["l2g_linked_ids"], -1)
            },
            # In a flat sequence, neither on what belongs to which paragraph.
            "paragraphs": {
                "long_paragraph_ids": np.full_like(
                    features["long_paragraph_ids"], -1
                )
            },
        }
        depends = {}
        with unittest.mock.patch.dict(
            demo.ENCODER,
            hidden_size=8,
            intermediate_size=8,
            num_attention_heads=2,
            initializer_range=0.5,
        ):
            for variant in structure.VARIANTS:
                model = structure.make_model(variant, vocab_size, 2, 1e-3)
                logits = {
                    name: model.predict({**features, **change}, verbose=0)
                    for name, change in changes.items()
                }
                depends[variant] = {
                    name
                    for name in ("links", "paragraphs")
                    if not np.allclose(logits[name], logits["full"], atol=1e-6)
                }
        self.assertEqual(
            depends,
            {
                "full": {"links", "paragraphs"},
                "no hard g2l": {"links", "paragraphs"},
                "no links": {"paragraphs"},
                "flat": set(),
            },
        )

    def flag_values(self, *arguments):
        values = flags.FlagValues()
        structure.define_flags(values)
        values(["structure", *arguments])
        return values

    def test_program_writes_a_row_for_every_training(self):
        output = os.path.join(self.get_temp_dir(), "rows.jsonl")
        with unittest.mock.patch.dict(
            demo.ENCODER,
            hidden_size=8,
            intermediate_size=8,
            num_attention_heads=2,
        ):
            structure.run(
                self.flag_values(
                    "--question_kinds=fixed",
                    "--variants=full,no links",
                    "--num_train=20",
                    "--num_heldout=8",
                    "--num_layers=1",
                    "--batch_size=4",
                    "--seconds=0",
                    f"--output={output}",
                )
            )
        with open(output, encoding="utf-8") as file:
            rows = [structure.Row(**json.loads(line)) for line in file]
        self.assertEqual([r.variant for r in rows], ["full", "no links"])
        for row in rows:
            # No time at all is up after the first step.
            self.assertEqual(row.steps, 1)
            self.assertIsNone(row.solved_at)
            self.assertIn(row.accuracy, np.arange(9) / 8)
        self.assertLen(structure.format_table(rows).splitlines(), 3)

    @parameterized.parameters("--question_kinds=hard", "--variants=fast")
    def test_unknown_names(self, argument):
        with self.assertRaisesRegex(app.UsageError, "unknown.*there are"):
            structure.run(self.flag_values(argument))


if __name__ == "__main__":
    tf.test.main()
