import numpy as np
import tensorflow as tf

from etcmodel.pipeline.example_schema import INPUT
from etcmodel.pipeline.example_schema import ExampleSchema
from etcmodel.pipeline.example_schema import Field
from etcmodel.pipeline.example_schema import Packing
from etcmodel.pipeline.packing import ExamplePacker
from etcmodel.pipeline.packing import group_of
from etcmodel.readers.records import Source

_SCHEMA = ExampleSchema(
    Packing({"block_ids": "blocks"}, "blocks"),
    block_ids=Field("block", INPUT),
    token_ids=Field("block", INPUT, size="tokens"),
    example_id=Field("one", INPUT, tf.string),
)


def document(number, size):
    """Makes a document with `size` segments of three tokens."""
    first = 100 * number
    return {
        "block_ids": [number] * size,
        "token_ids": np.arange(first, first + 3 * size).reshape([size, 3]),
        "example_id": b"%d" % number,
        "question": "q",
    }


def read(packed):
    """Returns the block_ids and token_ids of an example."""
    return [
        np.reshape(packed[name], -1).tolist()
        for name in ("block_ids", "token_ids")
    ]


def make_packer(number, **options):
    """Creates a packer that pads examples to `number` segments."""
    return ExamplePacker(_SCHEMA, {"blocks": number}, **options)


class ExamplePackerTest(tf.test.TestCase):
    def test_by_hand(self):
        packer = make_packer(4)
        self.assertEqual([], packer.add(document(1, 3)))
        self.assertEqual([], packer.add(document(2, 2)))
        (full,) = packer.add(document(3, 1))
        self.assertEqual(
            [[1, 1, 1, 3], [*range(100, 109), 300, 301, 302]], read(full)
        )
        # Values per record, and values that are not in the schema, become
        # lists.
        self.assertEqual([b"1", b"3"], full["example_id"])
        self.assertEqual(["q", "q"], full["question"])
        (alone,) = packer.add(document(4, 4))
        self.assertEqual([4] * 4, read(alone)[0])
        (rest,) = packer.flush()
        self.assertEqual(
            [[2, 2, 0, 0], [*range(200, 206), *[0] * 6]], read(rest)
        )
        self.assertEqual([], packer.flush())

    def test_few_examples_stay_open(self):
        packer = make_packer(10, max_open=2)
        self.assertEqual([], packer.add(document(1, 6)))
        self.assertEqual([], packer.add(document(2, 7)))
        (evicted,) = packer.add(document(3, 8))
        self.assertEqual([3] * 8 + [0] * 2, read(evicted)[0])

    def test_nothing_is_lost(self):
        rng = np.random.default_rng(0)
        sizes = rng.integers(1, 9, 200)
        packer = make_packer(8, max_open=4)
        packed = []
        for number, size in enumerate(sizes, 1):
            packed.extend(packer.add(document(number, size)))
        packed.extend(packer.flush())
        rows = np.array([read(x)[0] for x in packed])
        self.assertEqual(8, rows.shape[1])
        for number, size in enumerate(sizes, 1):
            # Documents stay whole: contiguous and within one example.
            where = np.argwhere(rows == number)
            self.assertAllEqual(
                where - where[:1], [[0, i] for i in range(size)]
            )
        # Packing leaves few segments empty.
        self.assertLess(np.mean(rows == 0), 0.1)

    def test_lists_with_two_limits(self):
        """Packed lists stay within both limits, and are not padded."""
        schema = ExampleSchema(
            Packing({"tokens": "long", "lengths": "global"}),
            tokens=Field("list", INPUT),
            lengths=Field("list", INPUT),
        )
        packer = ExamplePacker(schema, {"long": 8, "global": 3})
        packed = []
        for lengths in ([4], [2, 2], [3], [2, 2]):
            values = {"tokens": list(range(sum(lengths))), "lengths": lengths}
            packed += packer.add(values)
        packed += packer.flush()
        self.assertEqual(
            [[4, 2, 2], [3, 2, 2]], [x["lengths"].tolist() for x in packed]
        )
        self.assertAllEqual([0, 1, 2, 3, 0, 1, 2, 3], packed[0]["tokens"])
        # The tokens of two such records fit into an example, but not the 4
        # lengths.
        record = {"tokens": [0, 0], "lengths": [1, 1]}
        packed = [*packer.add(record), *packer.add(record), *packer.flush()]
        self.assertEqual([[1, 1]] * 2, [x["lengths"].tolist() for x in packed])

    def test_too_much_for_an_example(self):
        with self.assertRaisesRegex(
            ValueError, "'block_ids': 5.*'block_ids': 4"
        ):
            make_packer(4).add(document(1, 5))

    def test_groups_of_a_file(self):
        """A record's group does not depend on how files are divided."""
        group = {group_of(Source(x, i)) for x in "ab" for i in (0, 4095, 4096)}
        self.assertEqual({("a", 0), ("a", 1), ("b", 0), ("b", 1)}, group)

    def test_no_packing(self):
        packer = ExamplePacker(ExampleSchema(), {})
        self.assertEqual([{"a": 1}], packer.add({"a": 1}))
        self.assertEqual([], packer.flush())


if __name__ == "__main__":
    tf.test.main()
