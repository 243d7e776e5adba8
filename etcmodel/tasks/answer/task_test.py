"""Tests of question answering's options and experiments."""

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.tasks.answer.task import TASK


class TaskTest(tf.test.TestCase):
    def test_evidence_refers_to_units(self):
        row = {
            **{"question": "Who?", "paragraphs": [["Jan.", "Eve."], ["Bo."]]},
            **{"answers": "Eve", "evidence": [[0, 1]]},
        }
        for units, expected in (("texts", (0, 1)), ("paragraphs", (0, -1))):
            config = TASK.make_preprocessing_config({"units": units})
            (record,) = TASK.format(config).read_rows([row])
            self.assertEqual((expected,), record.evidence)

    def test_units_cannot_be_blocks(self):
        with self.assertRaisesRegex(UserError, "'blocks', expected one of"):
            TASK.make_preprocessing_config({"units": "blocks"})


if __name__ == "__main__":
    tf.test.main()
