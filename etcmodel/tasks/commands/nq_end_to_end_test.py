import gzip
import json
import shutil
import unittest

import numpy as np
import tensorflow as tf

from etcmodel.tasks import task_testing
from etcmodel.tasks.commands.predict import load_saved_model
from etcmodel.tasks.experiment_lib_test import KERAS_2
from etcmodel.testing import real_data_path


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class Keras2NQEndToEndTest(task_testing.EndToEndTestCase):
    """From the official file to answers: 3 real pages, learned by heart.

    The long answer of one page has 1,424 words: only one window of 2,048 tokens
    shows all of it, and another one its end. One page has no answer.
    """

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        parts = [real_data_path(f"nq/nq-train-0{i}.jsonl.gz") for i in range(2)]
        cls.input = cls.path("pages.jsonl.gz")
        # Gzipped files one after the other are one.
        with open(cls.input, "wb") as stream:
            for part in parts:
                with open(part, "rb") as source:
                    shutil.copyfileobj(source, stream)
        with gzip.open(cls.input, "rt", encoding="utf-8") as stream:
            cls.pages = {}
            for line in stream:
                page = json.loads(line)
                cls.pages[page["example_id"]] = page
        # The long answer and the short ones; each page has one annotation.
        cls.answers = {}
        for key, page in cls.pages.items():
            (annotation,) = page["annotations"]
            cls.answers[key] = [
                (span["start_token"], span["end_token"])
                for span in (
                    annotation["long_answer"],
                    *annotation["short_answers"],
                )
            ]
        cls.make_saved_model(
            "nq",
            ["--long_length=2048", "--global_length=128", "--stride=1800"],
            {
                "task.train_data.global_batch_size": 5,
                "task.validation_data.global_batch_size": 4,
            },
            real_data_path("vocab/bert_uncased_vocab.txt"),
            learning_rate=0.004,
            steps=120,
        )

    def test_the_pages_are_those_described(self):
        (nothing,) = [
            key for key, spans in self.answers.items() if spans == [(-1, -1)]
        ]
        self.assertEqual(5985355041383167183, nothing)
        lengths = [spans[0][1] - spans[0][0] for spans in self.answers.values()]
        self.assertEqual([0, 156, 1424], sorted(lengths))
        stats = self.read_stats()
        expected = {
            "records_read": 3,
            "records_written": 3,
            "records_dropped": 0,
            "answers": 2,
            "answers_in_no_window": 0,
            "candidates": sum(
                len(page["long_answer_candidates"])
                for page in self.pages.values()
            ),
            "windows": 10,
            "examples_written": 10,
            # Two show one answer, one the other.
            "windows_without_answer": 7,
        }
        self.assertEqual(expected, {key: stats[key] for key in expected})

    def test_evaluates(self):
        metrics = self.evaluate()
        for kind in ("long", "short"):
            for name in ("f1", "precision", "recall"):
                self.assertEqual(1.0, metrics[f"{kind}_best_threshold_{name}"])
        self.assertEqual(1.0, metrics["average_best_threshold_f1"])
        self.assertEqual(120, metrics["step"])

    def test_predicts_all_from_raw_pages(self):
        out, predictions = self.predict(self.input, "--batch_size=2")
        for name in ("long", "short", "average"):
            self.assertIn(f"{name}-best-threshold-f1: 1.0000 (3", out)
        entries = predictions["predictions"]
        self.assertEqual(
            list(self.pages), [entry["example_id"] for entry in entries]
        )
        for entry in entries:
            long, *short = self.answers[entry["example_id"]]
            self.assertEqual("NONE", entry["yes_no_answer"])
            for score in ("long_answer_score", "short_answers_score"):
                self.assertEqual(long[0] >= 0, entry[score] > 0)
            if long[0] >= 0:
                self.assertEqual(
                    [long, *short],
                    [
                        (span["start_token"], span["end_token"])
                        for span in (
                            entry["long_answer"],
                            *entry["short_answers"],
                        )
                    ],
                )

    def test_serves_all_pages_at_once(self):
        model, metadata = load_saved_model(self.saved_model)
        self.assertEqual("nq", metadata["task"])
        self.assertEqual(1800, metadata["features"]["stride"])
        pages = self.pages.values()

        def dense(rows, pad, dtype):
            values = np.full([len(rows), max(map(len, rows))], pad, dtype)
            for row, value in zip(values, rows, strict=True):
                row[: len(value)] = value
            return tf.constant(values)

        words = [page["document_tokens"] for page in pages]
        spans = [page["long_answer_candidates"] for page in pages]
        outputs = model.signatures["serving_default"](
            question=tf.constant([page["question_text"] for page in pages]),
            tokens=dense(
                [[word["token"].encode() for word in row] for row in words],
                b"",
                object,
            ),
            is_html=dense(
                [[word["html_token"] for word in row] for row in words],
                False,
                bool,
            ),
            candidate_starts=dense(
                [[span["start_token"] for span in row] for row in spans],
                -1,
                np.int32,
            ),
            candidate_ends=dense(
                [[span["end_token"] for span in row] for row in spans],
                -1,
                np.int32,
            ),
        )
        # All have at most one short answer.
        expected = [
            [*long, *(short[0] if short else (-1, -1)), 0]
            for long, *short in self.answers.values()
        ]
        names = [
            f"{kind}_answer_{end}"
            for kind in ("long", "short")
            for end in ("start", "end")
        ]
        self.assertAllEqual(
            expected,
            np.stack([outputs[name] for name in [*names, "yes_no"]], axis=1),
        )


if __name__ == "__main__":
    tf.test.main()
