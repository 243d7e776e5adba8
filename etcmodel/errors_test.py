import tensorflow as tf

from etcmodel import errors


class ErrorsTest(tf.test.TestCase):
    def test_record_error_names_everything(self):
        error = errors.RecordError(
            "train.json",
            17,
            "answer is not a candidate",
            record_id="WH_17",
            field="answer",
            problem="got 'x', expected one of its 3 candidates",
        )
        message = str(error)
        self.assertEqual(
            "train.json, record 17 (id 'WH_17'), field 'answer': got 'x', "
            "expected one of its 3 candidates. Fix the record, or leave it "
            "out, or skip such records with `skip_bad_records`.",
            message,
        )
        self.assertEqual("answer is not a candidate", error.reason)

    def test_where(self):
        self.assertEqual("rows.csv, record 2", errors.where("rows.csv", 2))
        self.assertEqual(
            "rows.csv, line 4, record 2 (id 'x')",
            errors.where("rows.csv", 2, 4, "x"),
        )

    def test_without_traceback(self):
        try:
            try:
                [][0]
            except IndexError as cause:
                raise errors.RecordError("a", 0, "b", problem="c") from cause
        except errors.RecordError as caught:
            error = caught
        self.assertIsInstance(error.__cause__, IndexError)
        self.assertIs(error, error.without_traceback())
        self.assertEqual(
            (None, None, None),
            (error.__traceback__, error.__cause__, error.__context__),
        )

    def test_shows_long_values_briefly(self):
        self.assertLess(len(errors.show("x" * 400_000)), 100)
        self.assertLess(len(errors.show(["x" * 9000] * 5000)), 500)

    def test_without_stack(self):
        message = (
            "Graph execution error:\n\nDetected at node x defined at\n"
            '  File "a.py", line 3\nToo many.\n\t [[{{node y}}]]\nBy 2.'
        )
        self.assertEqual(["Too many.", "By 2."], errors.without_stack(message))
        message = (
            "{{function_node __wrapped_x_device_/job:a/device:CPU:0}} Error in "
            "user-defined function passed to MapDataset:7 transformation with "
            "iterator: Iterator::Root::Map::Map: assertion failed: [It is "
            "long:] [13]\n\t [[{{node Assert}}]] [Op:IteratorGetNext] name: "
        )
        self.assertEqual(["[It is long:] [13]"], errors.without_stack(message))
        message = (
            "Graph execution error:\n\nDetected at node IteratorGetNext\n"
            "<stack traces unavailable>\n{{f}} Lost. [Op:Get] name: "
        )
        self.assertEqual(["Lost."], errors.without_stack(message))
        for nothing in ("", "  File"):
            self.assertEqual([nothing], errors.without_stack(nothing))

    def test_bad_records_raise_unless_skipped(self):
        error = errors.RecordError("f", 0, "no answer", problem="missing")
        with self.assertRaises(errors.RecordError):
            errors.BadRecords().report(error)
        skipping = errors.BadRecords(skip=True)
        self.assertEqual("", skipping.summary())
        for _ in range(7):
            skipping.report(error)
        self.assertEqual(7, skipping.total)
        self.assertEqual({"no answer": 7}, dict(skipping.counts))
        self.assertLen(skipping.examples, 5)
        self.assertIn("Skipped 7 bad records", skipping.summary())
        self.assertIn("no answer", skipping.summary())


if __name__ == "__main__":
    tf.test.main()
