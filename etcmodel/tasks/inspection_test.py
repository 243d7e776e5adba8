import tensorflow as tf

from etcmodel.tasks.inspection import Inspection


class InspectionTest(tf.test.TestCase):
    def test_text_is_aligned(self):
        summary = [
            ("record", "0 (id WH_0)"),
            ("linked mention tokens", 17),
            ("query", ""),
        ]
        inspection = Inspection(
            summary, side_inputs=None, long_labels=[], global_labels=[]
        )
        self.assertEqual(
            "record:                0 (id WH_0)\n"
            "linked mention tokens: 17\n"
            "query:                 ",
            inspection.text(),
        )


if __name__ == "__main__":
    tf.test.main()
