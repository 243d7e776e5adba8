import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import attention_core
from etcmodel.layers import attention_reference

HEADS = 2
SIZE = 3
VALUE_SIZE = 4
VOCAB = 5


def make_inputs(rng, batch, long_len, side_len, radius, mask_rate=0.7):
    """Random float64 inputs of `banded_attention` as a dict of arrays."""
    width = 2 * radius + 1
    normal = rng.standard_normal
    return dict(
        queries=normal((batch, long_len, HEADS, SIZE)),
        keys=normal((batch, long_len, HEADS, SIZE)),
        values=normal((batch, long_len, HEADS, VALUE_SIZE)),
        att_mask=(rng.random((batch, long_len, width)) < mask_rate).astype(
            np.int32
        ),
        relative_att_ids=rng.integers(
            VOCAB, size=(batch, long_len, width), dtype=np.int32
        ),
        side_keys=normal((batch, side_len, HEADS, SIZE)),
        side_values=normal((batch, side_len, HEADS, VALUE_SIZE)),
        side_att_mask=(
            rng.random((batch, long_len, side_len)) < mask_rate
        ).astype(np.int32),
        side_relative_att_ids=rng.integers(
            VOCAB, size=(batch, long_len, side_len), dtype=np.int32
        ),
    )


def make_tables(rng):
    return (
        rng.standard_normal((VOCAB, HEADS, SIZE)),
        rng.standard_normal((VOCAB, HEADS)),
    )


def reference_banded(inputs, radius, emb_table, bias_table):
    """What the paper's equations give for the same inputs."""
    length = inputs["queries"].shape[1]
    position = np.arange(length)
    near = np.abs(position[:, None] - position[None]) <= radius
    mask = attention_reference.square_of_band(inputs["att_mask"]) * near
    ids = attention_reference.square_of_band(inputs["relative_att_ids"])
    return attention_reference.reference_attention(
        inputs["queries"],
        np.concatenate([inputs["keys"], inputs["side_keys"]], axis=1),
        np.concatenate([inputs["values"], inputs["side_values"]], axis=1),
        np.concatenate([mask, inputs["side_att_mask"]], axis=-1),
        np.concatenate([ids, inputs["side_relative_att_ids"]], axis=-1),
        emb_table,
        bias_table,
    )


class BandTest(tf.test.TestCase):
    def test_band_to_square(self):
        band = tf.constant([[[1, 2, 3], [4, 5, 6], [7, 8, 9]]])
        self.assertAllEqual(
            attention_core.band_to_square(band, 1),
            [[[2, 3, 0], [4, 5, 6], [0, 7, 8]]],
        )


class DenseAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(False, True)
    def test_equals_the_reference(self, use_one_hot_lookup):
        rng = np.random.default_rng(0)
        queries = rng.standard_normal((2, 7, HEADS, SIZE))
        keys = rng.standard_normal((2, 9, HEADS, SIZE))
        values = rng.standard_normal((2, 9, HEADS, VALUE_SIZE))
        mask = rng.integers(2, size=(2, 7, 9), dtype=np.int32)
        mask[0, 3] = 0
        ids = rng.integers(VOCAB, size=(2, 7, 9), dtype=np.int32)
        emb_table, bias_table = make_tables(rng)
        output = attention_core.dense_attention(
            *(tf.constant(x) for x in (queries, keys, values)),
            att_mask=mask,
            relative_att_ids=ids,
            labels=attention_core.RelativeLabels(
                tf.constant(emb_table),
                tf.constant(bias_table),
                use_one_hot_lookup,
            ),
        )
        self.assertAllEqual(output[0, 3], np.zeros((HEADS, VALUE_SIZE)))
        self.assertAllClose(
            output,
            attention_reference.reference_attention(
                queries, keys, values, mask, ids, emb_table, bias_table
            ),
            rtol=1e-9,
            atol=1e-12,
        )

    def test_no_keys_at_all_gives_zeros(self):
        output = attention_core.dense_attention(
            tf.ones([1, 3, 1, 2]), tf.ones([1, 0, 1, 2]), tf.ones([1, 0, 1, 2])
        )
        self.assertAllEqual(output, tf.zeros([1, 3, 1, 2]))

    def test_masked_pairs_get_no_weight_however_high_their_score(self):
        # An added -10,000 would lose against a score of 10^6.
        queries = tf.constant([[[[1e3]]]])
        keys = tf.constant([[[[1e3]], [[0.0]]]])
        values = tf.constant([[[[1.0]], [[2.0]]]])
        output = attention_core.dense_attention(
            queries, keys, values, att_mask=[[[0, 1]]]
        )
        self.assertAllEqual(output, [[[[2.0]]]])

    def test_half_precision_does_not_overflow(self):
        # q.k is 90,000 before scaling: more than float16 holds.
        queries = tf.fill([1, 1, 1, 900], tf.constant(10, tf.float16))
        keys = tf.concat([queries, -queries], axis=1)
        values = tf.constant([[[[1.0]], [[2.0]]]], tf.float16)
        output = attention_core.dense_attention(queries, keys, values)
        self.assertEqual(output.dtype, tf.float16)
        self.assertAllEqual(output, [[[[1.0]]]])


class BandedAttentionTest(parameterized.TestCase, tf.test.TestCase):
    def test_equals_the_reference_at_random_sizes(self):
        rng = np.random.default_rng(1)
        for _ in range(15):
            radius = int(rng.integers(1, 13))
            length = int(rng.integers(1, 41))
            inputs = make_inputs(rng, 1, length, int(rng.integers(6)), radius)
            # Some queries with nothing to attend to.
            empty = rng.random(length) < 0.1
            inputs["att_mask"][:, empty] = 0
            inputs["side_att_mask"][:, empty] = 0
            tables = make_tables(rng)
            output = attention_core.banded_attention(
                local_radius=radius,
                labels=attention_core.RelativeLabels(
                    *(tf.constant(t) for t in tables)
                ),
                **{k: tf.constant(v) for k, v in inputs.items()},
            )
            self.assertAllClose(
                output,
                reference_banded(inputs, radius, *tables),
                rtol=1e-9,
                atol=1e-12,
                msg=f"radius {radius}, length {length}",
            )

    def test_without_masks_sees_the_whole_band_and_all_side_keys(self):
        rng = np.random.default_rng(2)
        inputs = make_inputs(rng, 2, 11, 3, 4, mask_rate=1.1)
        floats = {k: v for k, v in inputs.items() if v.dtype == np.float64}
        output = attention_core.banded_attention(local_radius=4, **floats)
        no_labels = (np.zeros((VOCAB, HEADS, SIZE)), np.zeros((VOCAB, HEADS)))
        self.assertAllClose(
            output, reference_banded(inputs, 4, *no_labels), rtol=1e-9
        )

    def test_unknown_lengths_when_compiled(self):
        rng = np.random.default_rng(3)
        inputs = make_inputs(rng, 2, 1, 3, 2)
        tables = make_tables(rng)

        signature = {
            name: tf.TensorSpec([None, None, *value.shape[2:]], value.dtype)
            for name, value in inputs.items()
        }

        @tf.function(input_signature=[signature], jit_compile=True)
        def attend(inputs):
            return attention_core.banded_attention(
                local_radius=2,
                labels=attention_core.RelativeLabels(*map(tf.constant, tables)),
                **inputs,
            )

        for length in (0, 1, 13):
            inputs = make_inputs(rng, 2, length, 3, 2)
            self.assertAllClose(
                attend({k: tf.constant(v) for k, v in inputs.items()}),
                reference_banded(inputs, 2, *tables),
                rtol=1e-9,
                atol=1e-12,
            )

    def test_float32_and_half_precision_are_close_to_float64(self):
        rng = np.random.default_rng(5)
        inputs = make_inputs(rng, 2, 17, 4, 3)
        tables = make_tables(rng)
        expected = reference_banded(inputs, 3, *tables)
        for dtype, tolerance in (
            (tf.float32, 1e-5),
            (tf.float16, 1e-2),
            (tf.bfloat16, 8e-2),
        ):
            cast = {
                k: tf.cast(v, dtype) if v.dtype == np.float64 else v
                for k, v in inputs.items()
            }
            output = attention_core.banded_attention(
                local_radius=3,
                labels=attention_core.RelativeLabels(
                    *(tf.cast(t, dtype) for t in tables)
                ),
                **cast,
            )
            self.assertEqual(output.dtype, dtype)
            self.assertAllClose(
                tf.cast(output, tf.float64),
                expected,
                rtol=tolerance,
                atol=tolerance,
            )

    def test_dropout_is_applied_to_both_kinds_of_probabilities(self):
        rng = np.random.default_rng(6)
        inputs = make_inputs(rng, 1, 6, 2, 1)
        shapes = []

        def drop_all(probs):
            shapes.append(probs.shape)
            return tf.zeros_like(probs)

        output = attention_core.banded_attention(
            local_radius=1,
            labels=attention_core.RelativeLabels(
                *map(tf.constant, make_tables(rng))
            ),
            dropout_fn=drop_all,
            **{k: tf.constant(v) for k, v in inputs.items()},
        )
        self.assertAllEqual(output, tf.zeros_like(output))
        self.assertLen(shapes, 2)

    def test_global_keys_are_not_copied_into_the_blocks(self):
        # There are more side keys than keys of a window.
        long_len, side_len, radius = 16, 20, 1
        inputs = make_inputs(
            np.random.default_rng(7), 1, long_len, side_len, radius
        )
        del inputs["relative_att_ids"], inputs["side_relative_att_ids"]
        graph = (
            tf.function(
                lambda: attention_core.banded_attention(
                    local_radius=radius, **inputs
                )
            )
            .get_concrete_function()
            .graph
        )
        largest = max(
            output.shape.num_elements() or 0
            for operation in graph.get_operations()
            for output in operation.outputs
            if output.dtype == tf.float64
        )
        # The scores of the side keys. In each of the 8 blocks of 2 queries,
        # their 3 or 4 numbers a head would be more.
        self.assertEqual(long_len * side_len * HEADS, largest)


if __name__ == "__main__":
    tf.test.main()
