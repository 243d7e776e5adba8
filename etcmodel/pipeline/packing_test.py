import numpy as np
import tensorflow as tf

from etcmodel.pipeline.packing import ExamplePacker


def document(number, size):
    """A document of a number with so many segments of three tokens."""
    values = {
        "block_ids": [number] * size,
        "token_ids": list(range(100 * number, 100 * number + 3 * size)),
    }
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=x))
                for name, x in values.items()
            }
        )
    ).SerializeToString()


def read(serialized):
    """block_ids and token_ids of an example."""
    features = tf.train.Example.FromString(serialized).features.feature
    return [
        list(features[name].int64_list.value)
        for name in ("block_ids", "token_ids")
    ]


def make_packer(number, **options):
    """Fills examples of so many segments up."""
    return ExamplePacker({"block_ids": number}, fill="block_ids", **options)


class ExamplePackerTest(tf.test.TestCase):
    def test_by_hand(self):
        packer = make_packer(4)
        self.assertEqual([], packer.add(document(1, 3)))
        self.assertEqual([], packer.add(document(2, 2)))
        (full,) = packer.add(document(3, 1))
        self.assertEqual(
            [[1, 1, 1, 3], [*range(100, 109), 300, 301, 302]], read(full)
        )
        (alone,) = packer.add(document(4, 4))
        self.assertEqual([4] * 4, read(alone)[0])
        (rest,) = packer.flush()
        self.assertEqual(
            [[2, 2, 0, 0], [*range(200, 206), *[0] * 6]], read(rest)
        )
        self.assertEqual([], packer.flush())

    def test_few_wait(self):
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
            # Whole, in one example, in a row.
            where = np.argwhere(rows == number)
            self.assertAllEqual(
                where - where[:1], [[0, i] for i in range(size)]
            )
        # Few segments are empty.
        self.assertLess(np.mean(rows == 0), 0.1)

    def test_too_large(self):
        with self.assertRaisesRegex(
            ValueError, "block_ids': 9.*'block_ids': 8"
        ):
            make_packer(8).add(document(1, 9))

    def test_several_limits(self):
        packer = ExamplePacker({"token_ids": 12, "block_ids": 3})
        self.assertEqual([], packer.add(document(1, 2)))
        # There is room for its tokens, but not for its segments.
        self.assertEqual([], packer.add(document(2, 2)))
        (full,) = packer.add(document(3, 1))
        self.assertEqual([1, 1, 3], read(full)[0])
        (rest,) = packer.flush()
        self.assertEqual([[2, 2], [*range(200, 206)]], read(rest))


if __name__ == "__main__":
    tf.test.main()
