"""Tests of classification's options and experiments."""

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.tasks.classify.task import TASK


class TaskTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("number", 3, 3.0),
        ("number", "1.5", 1.5),
        ("multiple", "a", ("a",)),
        ("single", 3.0, "3"),
    )
    def test_other_records_are_read_as_the_training_records(
        self, kind, label, expected
    ):
        """Without the training records, 3 would be read as the label "3"."""
        config = TASK.make_preprocessing_config({"kind": kind})
        rows = TASK.format(config).read_rows([{"text": "x", "label": label}])
        (record,) = rows
        self.assertEqual(expected, record.label)

    def test_labels_match_those_of_the_training_records(self):
        """ "1.0" or "True" in a CSV file matches 1 or true in a JSON file."""
        for labels, label, expected in (
            (["0", "1"], "1.0", "1"),
            (["False", "True"], True, "True"),
        ):
            config = TASK.make_preprocessing_config(
                {"kind": "single", "labels": labels}
            )
            (record,) = TASK.format(config).read_rows(
                [{"text": "x", "label": label}]
            )
            self.assertEqual(expected, record.label)

    @parameterized.parameters(
        ("single", False), ("number", False), ("multiple", True)
    )
    def test_threshold_is_only_tuned_for_several_labels(self, kind, expected):
        self.assertEqual(expected, TASK.tuned.is_used({"kind": kind}))

    def test_label_kind_that_differs_from_the_training_records(self):
        with self.assertRaisesRegex(
            UserError, "label_kind is 'number', .* are 'single'"
        ):
            TASK.make_preprocessing_config(
                {"kind": "single", "label_kind": "number"}
            )


if __name__ == "__main__":
    tf.test.main()
