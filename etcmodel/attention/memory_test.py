import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import attention
from etcmodel.attention import memory
from etcmodel.attention.attention_testing import reference_attention


class AttendTest(parameterized.TestCase, tf.test.TestCase):
    """See also the tests of the layers that attend to a memory."""

    @parameterized.parameters(False, True)
    def test_equals_the_reference(self, is_shared):
        rng = np.random.default_rng(0)
        normal = rng.standard_normal
        queries = normal((2, 5, 3, 4))
        keys, values = normal((2, 2, 6, 3, 4))
        if is_shared:
            keys[1], values[1] = keys[0], values[0]
        own_keys, own_values = normal((2, 2, 5, 3, 4))
        mask = rng.random((2, 6)) < 0.5
        own_mask = rng.random((2, 5, 5)) < 0.5
        mask[1] = own_mask[1, 2] = False
        rows = 0 if is_shared else slice(None)
        output, probs = memory.attend(
            tf.constant(queries),
            [
                attention.Keys(
                    tf.constant(own_keys), tf.constant(own_values), own_mask
                ),
                attention.Keys(
                    tf.constant(keys[rows]), tf.constant(values[rows]), mask
                ),
            ],
        )
        expected = reference_attention(
            queries,
            np.concatenate([own_keys, keys], axis=1),
            np.concatenate([own_values, values], axis=1),
            np.concatenate(
                [own_mask, np.tile(mask[:, np.newaxis], [1, 5, 1])], axis=2
            ),
        )
        self.assertAllEqual(expected[1, 2], np.zeros((3, 4)))
        self.assertAllClose(
            expected.reshape(2, 5, 12), output, rtol=1e-9, atol=1e-12
        )
        weighed = sum(
            np.einsum("hbij,bjhv->bihv", x, rows)
            for x, rows in zip(probs, (own_values, values), strict=True)
        )
        self.assertAllClose(expected, weighed, rtol=1e-9, atol=1e-12)

    def test_wrong_masks(self):
        x = tf.ones([1, 2, 1, 4])
        for mask, message in (
            (tf.ones([1, 3]), "mask of 3 columns"),
            (tf.ones([3]), "side_att_mask"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                memory.attend(x, [attention.Keys(x, x, mask, name="side_")])


if __name__ == "__main__":
    tf.test.main()
