import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import attention_core_test
from etcmodel.layers import streaming_global
from etcmodel.layers import streaming_shared_test as shared
from etcmodel.layers import streaming_tools_test as tools


class StreamingGlobalAttentionTest(
    shared.StreamingTests, parameterized.TestCase, tf.test.TestCase
):
    PIECES = ("global_", "long_")
    BANDS = ()
    # Sizes are those of the batch, the global and the long input.
    COMPILED = (2, 3, 13)
    EMPTY = ((1, 1, 1), (1, 3, 0), (1, 0, 5), (0, 3, 5))
    LARGE = (2, 7, 36)
    LONG = (1, 24, 192)
    DROPPED = (2, 10, 90)
    LEFT_OUT = (
        ["g2g_att_mask"],
        ["g2l_att_mask"],
        ["labels"],
        ["labels", "g2g_att_mask", "g2l_att_mask"],
    )

    def random_sizes(self, rng):
        return 2, int(rng.integers(1, 7)), int(rng.integers(1, 30))

    def make_case(self, rng, batch, global_len, long_len, with_specs=False):
        normal = rng.standard_normal
        heads = (shared.HEADS, shared.SIZE)
        floats = {"queries": normal((batch, global_len, *heads))}
        arrays = {}
        for piece, kind, to_len in (
            ("g2g", "global", global_len),
            ("g2l", "long", long_len),
        ):
            for name, size in (
                ("keys", shared.SIZE),
                ("values", shared.VALUE_SIZE),
            ):
                floats[f"{kind}_{name}"] = normal(
                    (batch, to_len, shared.HEADS, size)
                )
            shape = (batch, global_len, to_len)
            mask = (rng.random(shape) < 0.7).astype(np.int32)
            mask[:, 2::3] = 0
            arrays[f"{piece}_att_mask"] = mask
            arrays[f"{piece}_relative_att_ids"] = rng.integers(
                shared.VOCAB, size=shape, dtype=np.int32
            )
        tables = attention_core_test.make_tables(rng)
        floats |= dict(zip(("emb_table", "bias_table"), tables, strict=True))
        given = dict(arrays)
        if with_specs:
            labels = [] if with_specs is True else [with_specs]
            # The descriptions are those of the long queries.
            specs, spelled_out = tools.make_specs(
                rng, batch, long_len, global_len, 1, *labels
            )
            for name in ("att_mask", "relative_att_ids"):
                given[f"g2l_{name}"] = specs[f"side_{name}"]
                arrays[f"g2l_{name}"] = np.swapaxes(
                    spelled_out[f"side_{name}"], 1, 2
                )
        upstream = normal((batch, global_len, shared.HEADS, shared.VALUE_SIZE))
        return shared.Case(floats, arrays, given, upstream)

    def attend(self, **arguments):
        return streaming_global.streaming_global_attention(**arguments)

    def square(self, arrays, name):
        return np.concatenate(
            [arrays[f"g2g_{name}"], arrays[f"g2l_{name}"]], axis=-1
        )

    def independent_parts(self, is_kept):
        # Ten keys are a chunk.
        yield is_kept[0], is_kept[1]
        yield is_kept[:, 0], is_kept[:, 1]
        yield from itertools.combinations(np.split(is_kept, 10, axis=-1), 2)

    def test_maxima_may_come_in_any_order(self):
        # Scores that differ by far more than an exponential in float32 can.
        keys = [-3e3, 1e3, 0.0, 2e3, 2e3, -1e3]
        for order in (keys, keys[::-1], sorted(keys)):
            column = tf.reshape(tf.constant(order), [1, 6, 1, 1])
            ones = tf.ones([1, 1, 1, 1])
            with tools.chunks_of(1):
                results = tools.run(
                    self.streaming({}),
                    dict(
                        queries=ones,
                        global_keys=1500 * ones,
                        global_values=7 * ones,
                        long_keys=column,
                        long_values=column,
                    ),
                    ones,
                )
            self.assertAllClose(results["output"], 2e3 * ones)
            self.assertAllClose(
                results["long_values"],
                tf.cast(column == 2e3, tf.float32) / 2,
                # Of a number as large as 2,000 float32 keeps few decimals.
                rtol=1e-4,
            )
            for value in results.values():
                self.assertAllInRange(value, -1e4, 1e4)

    def test_masked_pairs_get_no_weight_however_high_their_score(self):
        # In float16 the long key's product with the query overflows.
        for dtype, size in ((tf.float32, 1e6), (tf.float16, 300.0)):
            one = tf.ones([1, 1, 1, 1], dtype)
            results = tools.run(
                self.streaming({"g2l_att_mask": tf.constant([[[0, 1]]])}),
                dict(
                    queries=one * size,
                    global_keys=0 * one,
                    global_values=2 * one,
                    long_keys=tf.concat([one * size, 0 * one], axis=1),
                    long_values=tf.concat([one, 4 * one], axis=1),
                ),
                one,
            )
            self.assertAllEqual(results["output"], 3 * one)
            self.assertAllEqual(results["long_values"], [[[[0.0]], [[0.5]]]])
            self.assertAllEqual(results["queries"], 0 * one)


if __name__ == "__main__":
    tf.test.main()
