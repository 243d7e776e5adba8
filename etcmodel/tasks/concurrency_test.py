"""Tests concurrent requests to a SavedModel."""

import concurrent.futures

import numpy as np
import tensorflow as tf

from etcmodel.tasks.wikihop.preprocessor import WikiHopPreprocessor
from testing import task_runs


class ConcurrencyTest(tf.test.TestCase):
    def test_concurrent_requests_do_not_affect_each_other(self):
        """Sends requests of different sizes, some of them invalid."""
        signatures, *_ = task_runs.load_of("wikihop")
        rng = np.random.default_rng(0)
        requests = []
        for _ in range(12):
            rows, long, short = rng.integers(1, 5), *rng.integers(3, 20, 2)
            ids = {
                name: rng.integers(
                    0, 2, [rows, long if name.startswith("l") else short]
                )
                for name in WikiHopPreprocessor.SCHEMA.input_specs()
            }
            for name in filter(lambda x: "breakpoints" in x, ids):
                # All tokens are in one paragraph.
                ids[name][:] = 0
                ids[name][:, -1] = 1
            requests.append(("features", ids))
            texts = rng.choice(["paris", "jan is here.", "rome", ""], [rows, 9])
            texts = {
                "query": texts[:, 0],
                "candidates": texts[:, 1 : 1 + short % 4 + 1],
                "supports": texts[:, 5:],
            }
            requests.append(("serving_default", texts))
        bad = []
        for name, wrong in ("long_token_ids", 10**6), ("global_token_ids", -1):
            ids = requests[0][1][name].copy()
            ids[-1, -1] = wrong
            bad.append(("features", {**requests[0][1], name: ids}))

        def answer(request):
            name, inputs = request
            outputs = signatures[name](
                **{key: tf.constant(value) for key, value in inputs.items()}
            )
            return {key: value.numpy() for key, value in outputs.items()}

        def fails(request):
            try:
                answer(request)
            except tf.errors.InvalidArgumentError:
                return True
            return False

        alone = [answer(request) for request in requests]
        with concurrent.futures.ThreadPoolExecutor(8) as executor:
            futures = []
            for _ in range(3):
                for i in rng.permutation(len(requests)):
                    futures.append((i, executor.submit(answer, requests[i])))
                    wrong = bad[i % len(bad)]
                    futures.append((None, executor.submit(fails, wrong)))
            for i, future in futures:
                if i is None:
                    self.assertTrue(future.result())
                for name, value in ({} if i is None else alone[i]).items():
                    self.assertAllEqual(value, future.result()[name])


if __name__ == "__main__":
    tf.test.main()
