import concurrent.futures
import warnings
from unittest import mock

import numpy as np
import tensorflow as tf

import etcmodel
from etcmodel.errors import UserError
from testing.tasks import write_small_saved_model

_REQUEST = {"query": "q", "candidates": ["x", "y", "z"], "supports": ["s"]}


class PredictorTest(tf.test.TestCase):
    """Tests a SavedModel that always answers with the first candidate."""

    def test_any_task(self):
        path = write_small_saved_model(self.get_temp_dir())
        model = etcmodel.load(path)
        self.assertEqual("wikihop", model.task)
        records = [_REQUEST, {**_REQUEST, "candidates": ["w"]}, _REQUEST]
        self.assertEqual(
            ["x", "w", "x"], model.predict(records, 2, progress=False)
        )
        with self.assertRaisesRegex(
            UserError, r"records\[1\]: expected a dict with query"
        ):
            model.predict([_REQUEST, {"query": "q"}], progress=False)

    def test_explain_needs_a_run(self):
        model = etcmodel.load(write_small_saved_model(self.get_temp_dir()))
        with self.assertRaisesRegex(UserError, "is a SavedModel, .* the run"):
            model.explain(_REQUEST)

    def test_batches(self):
        """Each record is predicted once, padded to the longest of its batch."""
        model = etcmodel.load(write_small_saved_model(self.get_temp_dir()))
        saved = model._load()
        answer, shapes = saved.answer, []

        def seen(**inputs):
            shapes.append(inputs["candidates"].shape.as_list())
            return answer(**inputs)

        with mock.patch.object(saved, "answer", seen):
            model.predict([_REQUEST] * 5, 2, progress=False)
        np.testing.assert_array_equal([[2, 3], [2, 3], [1, 3]], shapes)

    def test_records_that_do_not_fit_or_are_refused(self):
        model = etcmodel.load(write_small_saved_model(self.get_temp_dir()))
        saved = model._load()
        answer = saved.answer
        for output, values, expected in (
            ("tokens_cut", [0, 3, 0, 1], "Truncated records: 2"),
            ("is_refused", [False, True, False, True], "Refused records: 2"),
        ):

            def flagged(output=output, values=values, **inputs):
                return {**answer(**inputs), output: [values.pop()]}

            with mock.patch.object(saved, "answer", flagged):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    model.predict([_REQUEST] * 3, 1, progress=False)
                    model.predict([_REQUEST], 1, progress=False)
            self.assertEqual(
                [(expected, __file__)],
                [
                    (str(x.message).partition(".")[0], x.filename)
                    for x in caught
                ],
            )

    def test_first_predictions_of_several_threads(self):
        model = etcmodel.load(write_small_saved_model(self.get_temp_dir()))
        with concurrent.futures.ThreadPoolExecutor(4) as executor:
            found = list(
                executor.map(
                    lambda _: model.predict([_REQUEST] * 3, progress=False),
                    range(8),
                )
            )
        self.assertEqual([["x"] * 3] * 8, found)


if __name__ == "__main__":
    tf.test.main()
