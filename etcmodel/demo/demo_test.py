"""Tests of the demo's parts, and of a demo with only three training steps."""

import contextlib
import glob
import io
import json
import os
from unittest import mock

import tensorflow as tf

from etcmodel.cli import command_line
from etcmodel.demo import corpus
from etcmodel.demo import demo
from etcmodel.demo import vocab
from etcmodel.errors import UserError
from etcmodel.tasks.wikihop.task import TASK
from testing.helpers import write_file

FILES = """
    corpus/train.json corpus/heldout.json vocab.txt records/train/stats.json
    attention.png model/params.yaml model/train/events.out.tfevents.*
    model/checkpoint saved_model/saved_model.pb ask.py results.json
"""
SIZES = dict(
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=8,
    local_radius=4,
)
QUESTION = {
    "query": "island_with lighthouse and beehives",
    "candidates": ["hestia cove", "tasmer cay", "ulvar rock"],
    "supports": ["Tasmer Cay sells honey.", "A letter."],
}


class DemoTest(tf.test.TestCase):
    def path(self, name):
        return os.path.join(self.get_temp_dir(), name)

    def test_records_fit_into_the_features(self):
        records = [
            record
            for split in corpus.SPLITS
            for record in corpus.make_records(50, split=split, seed=11)
        ]
        vocab_file = self.path("vocab.txt")
        vocab.build_vocab(
            [t for r in records for t in (*r["supports"], r["query"])],
            vocab_file,
        )
        records = records[::4]
        config = TASK.make_preprocessing_config(demo.LENGTHS)
        made = TASK.make_preprocessor(config, vocab_file).build(
            tf.constant([r["query"] for r in records]),
            tf.constant([r["candidates"] for r in records]),
            tf.constant([r["supports"] for r in records]),
        )
        for counts in made.layout.counts.values():
            self.assertAllEqual(counts.tokens, counts.kept_tokens)
            self.assertAllEqual(counts.units, counts.kept_units)
        # Each of 12 facts and 8 remarks has a mention of at least 2 tokens.
        found = made.layout.features
        linked = tf.logical_and(
            found["l2g_linked_ids"] >= 0, found["long_token_type_ids"] == 1
        )
        self.assertAllGreater(
            tf.math.count_nonzero(linked, axis=1), 2 * (12 + 8) - 1
        )

    def test_output_dir(self):
        new = self.path("a/b")
        demo.prepare_output_dir(new)
        self.assertEqual(os.listdir(new), [demo.MARKER_FILE])
        with open(os.path.join(new, "left_over"), "w", encoding="utf-8"):
            pass
        demo.prepare_output_dir(new)
        self.assertEqual(os.listdir(new), [demo.MARKER_FILE])

        foreign = self.path("foreign")
        os.makedirs(foreign)
        demo.prepare_output_dir(foreign)  # It is empty.
        os.remove(os.path.join(foreign, demo.MARKER_FILE))
        with open(os.path.join(foreign, "mine"), "w", encoding="utf-8"):
            pass
        with self.assertRaisesRegex(UserError, "foreign.*not made by the demo"):
            demo.prepare_output_dir(foreign)
        self.assertEqual(os.listdir(foreign), ["mine"])
        with self.assertRaisesRegex(UserError, "mine.*cannot be created"):
            demo.prepare_output_dir(os.path.join(foreign, "mine"))

    def test_bad_question_ends_the_demo_first(self):
        """Tests one message; `ask_test.py` tests the others."""
        question = write_file(self, [{"query": "a"}])
        output_dir = self.path("output")
        flags = demo.Options(output_dir=output_dir, question=question)
        with self.assertRaisesRegex(
            UserError, "--question: .* record 0: 'candidates' is None"
        ):
            demo.main(flags, command_line.main)
        self.assertFalse(os.path.exists(output_dir))

    def test_whole_demo(self):
        output_dir = self.path("output")
        question = write_file(self, QUESTION)
        with mock.patch.dict(demo.ENCODER, SIZES):
            options = demo.Options(
                output_dir=output_dir,
                question=question,
                num_train=40,
                num_heldout=12,
                train_steps=3,
                min_accuracy=1.0,
            )
            # After three training steps, the accuracy is too low, so the demo
            # fails.
            with (
                contextlib.redirect_stdout(io.StringIO()) as out,
                self.assertRaisesRegex(UserError, "of the held-out records ri"),
            ):
                demo.main(options, command_line.main)
        for name in FILES.split():
            self.assertNotEmpty(glob.glob(f"{output_dir}/{name}"), name)
        with open(f"{output_dir}/results.json", encoding="utf-8") as file:
            results = json.load(file)
        self.assertEqual(results["chance"], 1 / 6)
        # The exported model gives the same results for features and for raw
        # text.
        self.assertNear(
            results["accuracy"], results["accuracy_from_raw_text"], 1e-6
        )
        self.assertLen(results["seconds"], 8)
        with open(f"{output_dir}/answers.json", encoding="utf-8") as file:
            answers = json.load(file)
        self.assertEmpty(answers["etcmodel_modules"])
        (answer,) = answers["files"][f"{output_dir}/question.json"]["answers"]
        self.assertIn(answer, QUESTION["candidates"])
        with open(f"{output_dir}/example.json", encoding="utf-8") as file:
            self.assertEqual(
                {
                    "query": QUESTION["query"],
                    "candidates": "hestia cove\ntasmer cay\nulvar rock",
                    "text": "Tasmer Cay sells honey.\n\nA letter.",
                },
                json.load(file),
            )
        last = out.getvalue().splitlines()[-1]
        self.assertEndsWith(
            last,
            f" -m etcmodel serve --saved_model={output_dir}/saved_model "
            f"--example={output_dir}/example.json",
        )
        for word in ("[8/8]", "chance", "tensorboard", "attention.png"):
            self.assertIn(word, out.getvalue())


if __name__ == "__main__":
    tf.test.main()
