"""Sends some odd requests for one task; the benchmark sends many."""

from unittest import mock

import numpy as np
import tensorflow as tf

from benchmarks import fuzz_requests
from benchmarks import odd_requests
from benchmarks import program


class FuzzRequestsTest(tf.test.TestCase):
    def test_odd_requests_are_answered_or_refused(self):
        lines = program.run(
            fuzz_requests.PROGRAM,
            program.parse(
                fuzz_requests.PROGRAM,
                "--tasks=openkp",
                "--requests=120",
                "--calls=30",
            ),
        )
        for line in lines:
            self.assertEqual([], line["first"])
            self.assertEqual(120, line["answered"] + line["refused"])
            self.assertEqual(30, line["results"] + line["errors"])
            # Many requests are answered, and many are refused.
            self.assertGreater(line["answered"], 20)
            self.assertGreater(line["refused"], 60)
        self.assertContainsSubset(fuzz_requests.PROGRAM.columns, lines[0])

    def test_violations_are_found(self):
        requests = {"text": {"query": 0, "text": 0}}
        body = b'{"instances": [{}, {}]}'
        for code, content, problem in (
            (200, b'{"predictions": [1]}', "1 predictions for 2 records"),
            (200, b'{"predictions": [NaN, 1]}', "has NaN"),
            (400, b'{"error": "bad"}', "names nothing"),
            (500, b'{"error": "The input text is bad."}', "code 500"),
            (500, b"Internal Server Error", "not JSON"),
            (400, b'{"error": "The input text is bad."}', None),
            (200, b'{"predictions": [1, 2]}', None),
        ):
            found = fuzz_requests.find_problem(
                body, code, content, requests, fuzz_requests.Counts()
            )
            if problem is None:
                self.assertIsNone(found)
            else:
                self.assertIn(problem, found)

    def test_a_good_record_that_fails_beside_another(self):
        good, odd = ({"query": np.array([x])} for x in (1.0, 2.0))
        for is_bad in (False, True):
            counts = fuzz_requests.Counts()

            def function(query, is_bad=is_bad):
                if len(query) > 1 or (is_bad and query[0] == 2):
                    raise tf.errors.InvalidArgumentError(None, None, "query")
                return {"y": query}

            with mock.patch.object(odd_requests, "make_tensors") as make:
                make.return_value = odd
                fuzz_requests.call_all(
                    *("openkp", {"text": function}, {"text": good}),
                    *(1, 1, counts),
                )
            # The batch may fail if the odd record fails alone.
            self.assertLen(counts.failures, 0 if is_bad else 1)

    def test_answers_are_compared(self):
        expected = {"a": ["x", 0.5], "b": 1}
        self.assertTrue(
            fuzz_requests.is_same(expected, {"a": ["x", 0.500001], "b": 1})
        )
        for found in ({"a": ["x", 0.6], "b": 1}, {"a": ["x"], "b": 1}, {}, 1):
            self.assertFalse(fuzz_requests.is_same(expected, found))


if __name__ == "__main__":
    tf.test.main()
