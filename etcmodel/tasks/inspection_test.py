import dataclasses

import tensorflow as tf

from etcmodel.tasks.inspection import Inspection


class InspectionTest(tf.test.TestCase):
    def _inspection(self, summary):
        return Inspection(
            summary=summary, side_inputs=None, long_labels=[], global_labels=[]
        )

    def test_text_is_aligned(self):
        inspection = self._inspection(
            [
                ("record", "0 (id WH_0)"),
                ("linked mention tokens", 17),
                ("query", ""),
            ]
        )
        self.assertEqual(
            "record:                0 (id WH_0)\n"
            "linked mention tokens: 17\n"
            "query:                 ",
            inspection.text(),
        )

    def test_values_of_any_type(self):
        self.assertEqual(
            "a: (1, 2)\nb: None\nc: 0.5",
            self._inspection([("a", (1, 2)), ("b", None), ("c", 0.5)]).text(),
        )

    def test_cannot_be_changed(self):
        with self.assertRaises(dataclasses.FrozenInstanceError):
            self._inspection([("a", 1)]).summary = []


if __name__ == "__main__":
    tf.test.main()
