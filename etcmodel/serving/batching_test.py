import asyncio
import threading

import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.serving import batching

AXES = batching.Axes(
    {"texts": ("records", "paragraphs"), "numbers": ("records", 2)},
    {
        "lengths": ("paragraphs",),
        "words": ("words",),
        "word_numbers": ("words",),
    },
)


def texts(*rows):
    made = np.array([[y.encode() for y in x] for x in rows], object)
    return {"texts": made, "numbers": np.full((len(rows), 2), len(rows))}


class Model:
    """Splits paragraphs into words; stores the sizes of its batches."""

    def __init__(self):
        self.batches, self.go_on = [], threading.Event()
        self.go_on.set()

    def __call__(self, inputs):
        self.go_on.wait()
        rows = inputs["texts"]
        self.batches.append(len(rows))
        if any(b"bad" in row for row in rows.tolist()):
            raise ValueError("bad text")
        words = [b" ".join(row).split() for row in rows.tolist()]
        most = max(map(len, words))
        return {
            "lengths": np.array([[len(x) for x in row] for row in rows]),
            "words": np.array(
                [x + [b""] * (most - len(x)) for x in words], object
            ).reshape(len(rows), most),
            "word_numbers": np.array(
                [[*range(len(x))] + [-1] * (most - len(x)) for x in words]
            ).reshape(len(rows), most),
            "fixed": np.zeros([len(rows), 5]),
        }


def ask(model, requests, axes=AXES, **options):
    """Submits requests at once; returns their answers or errors."""
    options = {
        "max_batch_size": 8,
        "timeout": 0.2,
        "max_waiting": 100,
        **options,
    }

    async def run():
        batcher = batching.Batcher(model, axes, **options)
        made = await asyncio.gather(
            *[batcher.submit(x) for x in requests], return_exceptions=True
        )
        await batcher.close()
        return made

    return asyncio.run(run())


class BatcherTest(tf.test.TestCase):
    def assert_alone(self, requests, answers):
        """Asserts that each request has the same answer when asked alone."""
        for request, answer in zip(requests, answers, strict=True):
            alone = Model()(request)
            self.assertEqual(alone.keys(), answer.keys())
            for name, x in alone.items():
                self.assertEqual(x.shape, answer[name].shape, name)
                self.assertAllEqual(x, answer[name])

    def test_joined_requests_are_answered_as_alone(self):
        requests = [
            texts(["a b"]),
            texts(["abcd"], [""]),
            texts(["c", "d"], ["", "e"]),
            texts([""]),
        ]
        # Only requests of the same size class are joined.
        requests = [x for x in requests if batching._size_class(x) == 3]
        model = Model()
        answers = ask(model, requests)
        self.assertEqual(
            [sum(len(x["texts"]) for x in requests)], model.batches
        )
        self.assert_alone(requests, answers)

    def test_short_requests_do_not_wait_for_long_ones(self):
        requests = [texts(["a"]), texts(["x " * 1000]), texts(["b"])]
        model = Model()
        self.assert_alone(requests, ask(model, requests))
        self.assertEqual([2, 1], model.batches)

    def test_batches_have_at_most_so_many_records(self):
        requests = [texts(["a"], ["b"])] * 3 + [texts(*[["c"]] * 7)]
        model = Model()
        self.assert_alone(requests, ask(model, requests, max_batch_size=4))
        self.assertEqual([4, 2, 7], model.batches)

    def test_one_bad_request_leaves_the_others_alone(self):
        requests = [texts(["bad"]), texts(["all"]), texts(["ill"])]
        first, *others = ask(Model(), requests)
        self.assertIsInstance(first, ValueError)
        self.assert_alone(requests[1:], others)

    def test_sizes_that_differ_are_an_error(self):
        """Padding beside a longer request must not hide the difference."""
        axes = batching.Axes(
            {"titles": ("records", "parts"), "texts": ("records", "parts")}, {}
        )
        requests = [
            {x: np.full([1, size], b"a", object) for x, size in sizes.items()}
            for sizes in (
                {"titles": 2, "texts": 3},
                {"titles": 3, "texts": 3},
            )
        ]
        wrong, right = ask(lambda inputs: inputs, requests, axes)
        self.assertIsInstance(wrong, UserError)
        self.assertIn(
            "titles and texts differ in their number of parts: 2 and 3",
            str(wrong),
        )
        self.assertEqual(requests[1].keys(), right.keys())

    def test_requests_that_would_be_mostly_padding_are_not_joined(self):
        axes = batching.Axes({"x": ("records", "rows", "columns")}, {})
        batches = []

        def model(inputs):
            batches.append(inputs["x"].shape)
            return inputs

        shapes = [(1, 2000, 1), (1, 1, 2000)]
        ask(model, [{"x": np.full(x, b"", object)} for x in shapes], axes)
        self.assertEqual(shapes, batches)

    def test_outputs_that_cannot_be_split_stop_no_other_request(self):
        outputs = [{"lengths": np.zeros([2])}, {"lengths": np.zeros([1, 1])}]

        def model(inputs):
            return outputs[min(len(inputs["texts"]), 2) == 1]

        # `axes` names an axis that the output lacks.
        made = ask(model, [texts(["a"]), texts(["b"])])
        self.assertEqual([(1, 1)] * 2, [x["lengths"].shape for x in made])

    def test_without_axes_nothing_is_joined(self):
        model = Model()
        ask(model, [texts(["a"])] * 3, axes=None)
        self.assertEqual([1, 1, 1], model.batches)

    def test_a_full_queue_refuses(self):
        model = Model()
        model.go_on.clear()

        async def run():
            batcher = batching.Batcher(
                model, AXES, max_batch_size=1, timeout=0, max_waiting=2
            )
            tasks = [asyncio.create_task(batcher.submit(texts(["a"])))]
            while batcher._waiting or not batcher._is_busy:
                await asyncio.sleep(0.01)
            tasks += [
                asyncio.create_task(batcher.submit(texts(["b"])))
                for _ in range(2)
            ]
            await asyncio.sleep(0)
            with self.assertRaisesRegex(batching.QueueFullError, "2 records"):
                await batcher.submit(texts(["c"]))
            closing = asyncio.create_task(batcher.close())
            model.go_on.set()
            await closing
            return await asyncio.gather(*tasks)

        self.assertLen(asyncio.run(run()), 3)

    def test_requests_of_clients_that_are_gone_are_not_computed(self):
        model = Model()
        model.go_on.clear()

        async def run():
            batcher = batching.Batcher(
                model, AXES, max_batch_size=8, timeout=0, max_waiting=2
            )
            tasks = [asyncio.create_task(batcher.submit(texts(["a"])))]
            while not batcher._is_busy:
                await asyncio.sleep(0.01)
            for _ in range(3):
                gone = asyncio.create_task(batcher.submit(texts(["b"], ["c"])))
                await asyncio.sleep(0.01)
                # The queue has room again for the next request.
                gone.cancel()
                await asyncio.wait([gone])
                self.assertTrue(gone.cancelled())
            model.go_on.set()
            await asyncio.gather(*tasks)
            await asyncio.wait_for(batcher.close(), 10)

        asyncio.run(run())
        self.assertEqual([1], model.batches)

    def test_a_closed_batcher_refuses(self):
        async def run():
            batcher = batching.Batcher(
                Model(), AXES, max_batch_size=1, timeout=0, max_waiting=2
            )
            await batcher.close()
            with self.assertRaisesRegex(batching.ClosedError, "unloaded"):
                await asyncio.wait_for(batcher.submit(texts(["a"])), 5)

        asyncio.run(run())


class JoinTest(tf.test.TestCase):
    def test_padding(self):
        flags = [{"x": np.array([[True]])}, {"x": np.array([[True, True]])}]
        self.assertAllEqual(
            [[True, False], [True, True]], batching.join(flags)["x"]
        )
        floats = [{"x": np.ones([1, 1, 2])}, {"x": np.ones([1, 2, 2])}]
        self.assertAllEqual(
            [[[1, 1], [-1, -1]], [[1, 1], [1, 1]]], batching.join(floats)["x"]
        )


if __name__ == "__main__":
    tf.test.main()
