import collections
import dataclasses
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.pipeline import example_schema
from etcmodel.pipeline.record_keys import record_keys
from etcmodel.training import evaluation
from testing import toy_task
from testing import toy_task as toy

# For each row: record, window, word, logit and weight.
_ROWS = [
    # The best window of r0 selects the fourth word, "a", which is wrong.
    ("r0", 0, 3, 1.5, 1.0),
    ("r0", 1, 5, -1.0, 1.0),
    ("r0", 2, 8, 1.2, 1.0),
    # The answer of r1 is right. The answer of r2, with the logit 0.5, is right
    # only if the threshold is below 0.5.
    ("r1", 0, 0, 1.8, 1.0),
    ("r2", 0, 2, 0.2, 1.0),
    ("r2", 1, 4, 0.5, 1.0),
    # r3 has no row, so it counts as wrong.
]


class EvaluationTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = toy_task.write_records(
            tempfile.mkdtemp(dir=cls().get_temp_dir())
        )
        cls.records = evaluation.read_records(
            toy.TASK, toy.ToyPreprocessor.SCHEMA, cls.directory
        )

    def test_reads_each_record_once(self):
        found = {record.id: record for record in self.records}
        self.assertLen(self.records, 4)
        for record in toy_task.RECORDS:
            stored = found[record.id]
            words = record.text.split()
            self.assertEqual(record.answer, stored.gold)
            self.assertEqual(
                {
                    "text": record.text.encode(),
                    "text_words": [word.encode() for word in words],
                },
                stored.text,
            )

    def test_parts_of_a_record_are_merged(self):
        fields = toy.ToyPreprocessor.SCHEMA.fields
        schema = example_schema.ExampleSchema(
            merge_texts=lambda parts: {
                "text": b"|".join(x["text"] for x in parts)
            },
            **fields,
        )
        read = evaluation.read_records(toy.TASK, schema, self.directory)
        windows = collections.Counter({"r0": 3, "r1": 1, "r2": 2, "r3": 1})
        self.assertEqual(
            windows, {x.id: 1 + x.text["text"].count(b"|") for x in read}
        )

    def test_records_without_an_answer(self):
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        toy_task.write_records(directory, "predict")
        self.assertEmpty(
            evaluation.read_records(
                toy.TASK, toy.ToyPreprocessor.SCHEMA, directory
            )
        )

    def _batches(self, rows):
        """Makes batches of shuffled rows and a padding row."""
        rng = np.random.default_rng(0)
        rows = [rows[i] for i in rng.permutation(len(rows))]
        # Padding rows have no effect, whatever their values are.
        rows.append(("?", 0, 5, 99.0, 0.0))
        ids, windows, words, logits, weights = zip(*rows, strict=True)
        merged = {
            "record": record_keys(tf.constant(ids)).numpy(),
            "window": np.array(windows),
            "word": np.array(words, np.int32),
            "logit": np.array(logits, np.float32),
            "weight": np.array(weights, np.float32),
        }
        return [
            {name: x[start : start + 3] for name, x in merged.items()}
            for start in range(0, len(rows), 3)
        ]

    def _score(self, rows, task=toy.TASK, **options):
        task_model = task.make_model(options=toy.Options(**options))
        return evaluation.score(
            task,
            task_model,
            toy.ToyPreprocessor.SCHEMA,
            self._batches(rows),
            self.records,
        )

    def test_threshold_is_the_best_one(self):
        self.assertEqual(
            {"right": 0.5, "given": 0.75, "threshold": 0.0}, self._score(_ROWS)
        )
        # A threshold that is given is not tuned.
        for threshold, right, given in ((1.0, 0.25, 0.5), (2.0, 0.0, 0.0)):
            self.assertEqual(
                {"right": right, "given": given, "threshold": threshold},
                self._score(_ROWS, threshold=threshold),
            )

    def test_option_that_makes_no_difference(self):
        """An option without effect is not tuned, and not reported."""
        tuned = toy.TASK.tuned._replace(is_used=lambda sizes: False)
        task = dataclasses.replace(toy.TASK, tuned=tuned)
        score = toy.TASK.dataset.score
        with mock.patch.object(task.dataset, "score", wraps=score) as scored:
            found = self._score(_ROWS, task=task)
        self.assertEqual(1, scored.call_count)
        # Without a value, the toy model's threshold is 0.
        self.assertEqual({"right": 0.5, "given": 0.75}, found)

    def test_groups(self):
        """Reports metrics of groups of records besides those of all records."""
        # r0 has three rows and a wrong answer; r1 has one row and the right
        # answer; r2 has two rows and, at a threshold of 1, no answer.
        groups = {"_several": lambda n: n > 1, "_one": lambda n: n == 1}
        model = type(toy.TASK.make_model(options=toy.Options()))
        with mock.patch.object(model, "GROUPS", groups):
            found = self._score(_ROWS, threshold=1.0)
        self.assertEqual(
            {
                **{"right": 0.25, "right_several": 0.0, "right_one": 1.0},
                **{"given": 0.5, "given_several": 0.5, "given_one": 1.0},
                "threshold": 1.0,
            },
            found,
        )

    def test_rows_of_other_records(self):
        with self.assertRaisesRegex(UserError, "gold answers.*`split=dev`"):
            self._score([("r0", 0, 3, 1.5, 1.0), ("other", 0, 1, 1.0, 1.0)])

    @parameterized.parameters(1, 2, 64)
    def test_records_at_once(self, number):
        before = evaluation._RECORDS_AT_ONCE
        self.addCleanup(setattr, evaluation, "_RECORDS_AT_ONCE", before)
        evaluation._RECORDS_AT_ONCE = number
        names = [record.id for record in self.records]
        owner = np.array([0, 0, 1, 3])
        chosen = {
            "word": np.array([0, 1, 0, 0], np.int32),
            "logit": np.array([1.0, 3.0, 2.0, 2.0], np.float32),
        }
        predictions = evaluation.predict_records(
            toy.TASK.make_model(),
            evaluation.make_batches(
                toy.ToyPreprocessor.SCHEMA, chosen, owner, self.records
            ),
        )
        texts = {record.id: record.text.split() for record in toy_task.RECORDS}
        # The third record has no prediction, because it has no row.
        self.assertEqual(
            {
                names[0]: texts[names[0]][1],
                names[1]: texts[names[1]][0],
                names[3]: texts[names[3]][0],
            },
            predictions,
        )


if __name__ == "__main__":
    tf.test.main()
