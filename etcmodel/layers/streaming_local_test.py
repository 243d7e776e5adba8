import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import attention_core_test
from etcmodel.layers import attention_reference
from etcmodel.layers import streaming_local
from etcmodel.layers import streaming_shared_test as shared
from etcmodel.layers import streaming_tools_test as tools


class StreamingLocalAttentionTest(
    shared.StreamingTests, parameterized.TestCase, tf.test.TestCase
):
    PIECES = ("", "side_")
    BANDS = ("att_mask", "relative_att_ids")
    # Sizes are those of the batch, the long and the side input, and the radius.
    COMPILED = (2, 13, 3, 3)
    EMPTY = ((1, 1, 2, 3), (1, 3, 0, 3), (2, 0, 3, 3), (0, 5, 2, 3))
    LARGE = (2, 36, 6, 7)
    LONG = (1, 96, 24, 2)
    DROPPED = (2, 64, 8, 4)
    LEFT_OUT = (
        ["att_mask"],
        ["side_att_mask"],
        ["att_mask", "side_att_mask", "labels"],
        ["labels"],
        ["side"],
        ["side", "labels", "att_mask"],
    )

    def random_sizes(self, rng):
        length, side_len = int(rng.integers(1, 41)), int(rng.integers(6))
        return 2, length, side_len, int(rng.integers(1, 9))

    def make_case(
        self, rng, batch, long_len, side_len, radius, with_specs=False
    ):
        # That of the case made last.
        self.radius = radius
        floats = attention_core_test.make_inputs(
            rng, batch, long_len, side_len, radius
        )
        arrays = {
            name: floats.pop(name)
            for name in list(floats)
            if name.endswith(("mask", "ids"))
        }
        tables = attention_core_test.make_tables(rng)
        floats |= dict(zip(("emb_table", "bias_table"), tables, strict=True))
        given = dict(arrays)
        if with_specs:
            labels = [] if with_specs is True else [with_specs]
            given, arrays = tools.make_specs(
                rng, batch, long_len, side_len, radius, *labels
            )
        else:
            arrays["att_mask"][:, 1::4] = 0
            arrays["side_att_mask"][:, 1::4] = 0
        upstream = rng.standard_normal(
            (batch, long_len, shared.HEADS, shared.VALUE_SIZE)
        )
        return shared.Case(floats, arrays, given, upstream)

    def attend(self, **arguments):
        return streaming_local.streaming_local_attention(
            local_radius=self.radius, **arguments
        )

    def square(self, arrays, name):
        square = attention_reference.square_of_band(arrays[name])
        return np.concatenate([square, arrays[f"side_{name}"]], axis=-1)

    def leave_out(self, case, name):
        if name != "side":
            return super().leave_out(case, name)
        for name in ("side_att_mask", "side_relative_att_ids"):
            del case.given[name]
            case.arrays[name] = case.arrays[name][..., :0]
        for name in ("side_keys", "side_values"):
            case.floats[name] = case.floats[name][:, :0]
        return ["side_keys", "side_values"]

    def independent_parts(self, is_kept):
        side = is_kept[..., 64:]
        # The band of four queries of each block, which the ends do not cut.
        bands = [
            np.stack(
                [
                    is_kept[:, :, i, i - 4 : i + 5]
                    for i in range(start, start + 4)
                ]
            )
            for start in range(4, 60, 8)
        ]
        yield side[0], side[1]
        yield side[:, 0], side[:, 1]
        yield from itertools.combinations(np.split(side, 8, axis=2), 2)
        yield from itertools.combinations(bands, 2)

    def test_masked_pairs_get_no_weight_however_high_their_score(self):
        self.radius = 1
        # In float16 the first key's product with the query overflows.
        for dtype, size in ((tf.float32, 1e6), (tf.float16, 300.0)):
            queries = tf.constant([[[[size]], [[size]]]], dtype)
            keys = tf.constant([[[[size]], [[0.0]]]], dtype)
            values = tf.constant([[[[1.0]], [[2.0]]]], dtype)
            mask = tf.constant([[[0, 0, 1], [0, 1, 0]]])
            results = tools.run(
                self.streaming({"att_mask": mask}),
                {"queries": queries, "keys": keys, "values": values},
                tf.ones_like(values),
            )
            self.assertAllEqual(results["output"], [[[[2.0]], [[2.0]]]])
            self.assertAllEqual(results["values"], [[[[0.0]], [[2.0]]]])
            self.assertAllEqual(results["queries"], tf.zeros_like(queries))


if __name__ == "__main__":
    tf.test.main()
