"""Tests of selection's options and experiments."""

import tensorflow as tf

from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.tasks.select.task import TASK

_ROW = {"paragraphs": [["Jan sings.", "He paints."], ["It rains."]]}


class TaskTest(tf.test.TestCase):
    def _read(self, units, selected):
        format_ = TASK.format(TASK.make_preprocessing_config({"units": units}))
        (record,) = format_.read_rows([{**_ROW, "selected": selected}])
        return record.selected

    def test_positions_depend_on_units(self):
        self.assertEqual(((0, 1),), self._read("texts", [[0, 1]]))
        self.assertEqual(((0, 1),), self._read("auto", [[0, 1]]))
        # Selecting a text selects the whole paragraph.
        self.assertEqual(((0, -1),), self._read("paragraphs", [[0, 1]]))
        self.assertEqual(((1, -1),), self._read("paragraphs", [1]))
        with self.assertRaisesRegex(RecordError, "Leave `units` out"):
            self._read("sentences", [[0, 1]])

    def test_units_cannot_be_blocks(self):
        with self.assertRaisesRegex(UserError, "'blocks', expected one of"):
            TASK.make_preprocessing_config({"units": "blocks"})


if __name__ == "__main__":
    tf.test.main()
