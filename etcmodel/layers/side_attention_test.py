import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import side_attention
from testing import layer_checks
from testing import references

HIDDEN, BATCH, MAIN, SIDE, POSITIONS = 21, 3, 4, 6, 2
MODES = (
    None,
    "absolute",
    "absolute_add_ln",
    "simple_relative",
    "query_dot_relative",
)


def make_layer(num_heads=3, mode=None, hidden=HIDDEN, seed=0, **kwargs):
    """Returns a built layer in which all weights are random."""
    if mode is not None:
        kwargs = {
            "pos_embed_mode": mode,
            "pos_embed_size": POSITIONS,
            "use_one_hot_embeddings": False,
        } | kwargs
    layer = side_attention.SideAttention(hidden, num_heads, **kwargs)
    layer.build((None, None, hidden))
    layer_checks.randomize(layer, seed)
    return layer


def make_call(side_rank=2, hidden=HIDDEN, seed=1):
    """Returns arguments of a call; all keys of one token are masked."""
    rng = np.random.default_rng(seed)
    side_shape = [BATCH, SIDE][3 - side_rank :]
    mask = rng.binomial(1, 0.5, size=[BATCH, MAIN, SIDE])
    mask[0, 0] = 0
    return dict(
        main_input=rng.normal(size=[BATCH, MAIN, hidden]).astype(np.float32),
        side_input=rng.normal(size=[*side_shape, hidden]).astype(np.float32),
        att_mask=mask.astype(np.int32),
        # Some positions are beyond the tables.
        main_pos=np.array([1, 4, 9], np.int32),
        side_pos=rng.integers(0, 10, size=side_shape).astype(np.int32),
    )


def expect(layer, call):
    """Returns the reference's output for a call."""
    names = {"main_input": "main", "side_input": "side"}
    return references.side_attention(
        layer, **{names.get(name, name): x for name, x in call.items()}
    )


class ReferenceTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        # Mode, heads, default side input, top k, rank of the side input, mask
        # and one-hot lookup. Nearly every pair of option values occurs.
        (None, 0, False, None, 2, True, False),
        (None, 3, True, 2, 3, False, False),
        (None, 1, False, 9, 3, True, False),
        ("absolute", 1, True, None, 3, True, True),
        ("absolute", 3, False, 9, 2, False, False),
        ("absolute", 0, True, 2, 2, True, False),
        ("absolute_add_ln", 0, True, 2, 2, True, True),
        ("absolute_add_ln", 7, False, None, 3, False, False),
        ("simple_relative", 3, True, 2, 3, True, True),
        ("simple_relative", 0, False, 9, 2, False, False),
        ("query_dot_relative", 3, False, 2, 2, True, False),
        ("query_dot_relative", 0, True, None, 3, True, True),
        ("query_dot_relative", 7, True, 9, 2, False, True),
    )
    def test_equals_the_reference_with_gradients(
        self, mode, num_heads, default, top_k, side_rank, has_mask, one_hot
    ):
        options = {} if mode is None else {"use_one_hot_embeddings": one_hot}
        layer = make_layer(
            num_heads,
            mode,
            enable_default_side_input=default,
            top_k_attention=top_k,
            dtype="float64",
            **options,
        )
        call = make_call(side_rank)
        if not has_mask:
            call["att_mask"] = None
        output = layer(**call)
        self.assertEqual(output.shape, [BATCH, MAIN, HIDDEN])
        self.assertAllClose(output, expect(layer, call), 1e-9, 1e-9)
        inputs = [call.pop("main_input"), call.pop("side_input")]
        layer_checks.check_gradients(
            self,
            layer,
            inputs,
            lambda a, b: layer(a, b, **call),
            lambda a, b: references.side_attention(layer, a, b, **call),
        )

    @parameterized.parameters(
        # Mode, ranks of the side input, of its positions and of the mask; and
        # whether the graph knows the number of examples.
        (None, 2, 1, 3, False),
        (None, 3, 1, 2, True),
        ("absolute", 2, 1, 2, False),
        ("absolute_add_ln", 2, 2, 3, False),
        ("absolute_add_ln", 3, 1, 3, True),
        ("simple_relative", 2, 2, 3, True),
        ("query_dot_relative", 3, 2, 2, False),
    )
    def test_an_example_at_a_time(
        self, mode, side_rank, pos_rank, mask_rank, is_static
    ):
        layer = make_layer(mode=mode, dtype="float64")
        call = make_call(side_rank)
        rng = np.random.default_rng(2)
        call["att_value_mask"] = rng.integers(0, 2, [BATCH, MAIN])
        call["side_pos"] = rng.integers(0, 9, [BATCH, SIDE][2 - pos_rank :])
        if mask_rank == 2:
            call["att_mask"] = call["att_mask"][:, 1]
        expected = call
        if mask_rank == 2:
            mask = np.tile(call["att_mask"][:, np.newaxis], [1, MAIN, 1])
            expected = call | {"att_mask": mask}
        length = BATCH if is_static else None
        layer_checks.check_chunks(
            self,
            layer,
            call,
            expect(layer, expected),
            1,
            lambda x: [length if len(x) == BATCH else len(x), *x.shape[1:]],
            1 if is_static else None,
        )


class HandComputedTest(tf.test.TestCase):
    """One head without projections, so `q`, `k` and `v` are the inputs."""

    def attend(self, main, side, weights, hidden=1, positions=None, **options):
        layer = side_attention.SideAttention(hidden, 0, **options)
        layer.build((None, None, hidden))
        layer.set_weights([np.array(w) for w in weights])
        return layer(np.float32(main), np.float32(side), **positions or {})

    def test_no_op_memory_among_the_best(self):
        # The scores are 0, log 2, log 3 and, for the no-op memory, log 5.
        logs = np.log([1.0, 2.0, 3.0, 5.0])
        for k, expected in ((1, 0.0), (2, 3 * logs[2] / 8)):
            output = self.attend(
                [[[1.0]]],
                logs[:3, None],
                [logs[3:]],
                enable_default_side_input=True,
                top_k_attention=k,
            )
            self.assertAllClose(output, [[[expected]]])

    def test_simple_relative(self):
        # Distances -3, -1, 0, 2 and 5 from the segment, clipped to -2 .. 2.
        output = self.attend(
            np.zeros([1, 1, 5]),
            np.eye(5),
            [np.log([[1.0], [2.0], [3.0], [4.0], [5.0]]) * np.sqrt(5)],
            hidden=5,
            positions=dict(main_pos=[5], side_pos=[8, 6, 5, 3, 0]),
            pos_embed_mode="simple_relative",
            pos_embed_size=2,
            use_one_hot_embeddings=False,
        )
        self.assertAllClose(output[0, 0], np.array([1, 2, 3, 5, 5]) / 16)


class SideAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(0, 3)
    def test_the_value_mask_hides_the_bias(self, num_heads):
        layer = make_layer(num_heads)
        call = make_call()
        keep = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 1, 1]])
        for mask in (keep, keep.astype(bool), keep.astype(np.float32)):
            output = np.array(layer(**call, att_value_mask=mask))
            self.assertAllEqual(output[keep == 0], 0 * output[keep == 0])
            self.assertAllEqual(output[keep == 1], layer(**call)[keep == 1])

    @parameterized.parameters(
        (None, 0, None),
        ("absolute", 3, 2),
        ("absolute_add_ln", 0, 2),
        ("simple_relative", 3, None),
        ("query_dot_relative", 3, 2),
    )
    def test_masked_tokens_and_no_memories(self, mode, num_heads, top_k):
        layer = make_layer(num_heads, mode, top_k_attention=top_k)
        nothing = np.zeros([BATCH, MAIN, HIDDEN])
        if num_heads:
            nothing += np.array(layer.output_projection.bias)
        call = make_call()
        masked = call | {"att_mask": 0 * call["att_mask"]}
        self.assertAllClose(layer(**masked), nothing)
        for rank in (2, 3):
            empty = make_call(rank)
            empty["side_input"] = empty["side_input"][..., :0, :]
            for name in ("side_pos", "att_mask"):
                empty[name] = empty[name][..., :0]
            self.assertAllClose(layer(**empty), nothing)
        self.assertAllClose(layer(**empty | {"att_mask": None}), nothing)

    def test_a_mask_for_all_tokens_of_a_segment(self):
        layer = make_layer(3, "query_dot_relative", top_k_attention=2)
        call = make_call()
        mask = call.pop("att_mask")[:, 1]
        expected = layer(**call, att_mask=np.tile(mask[:, None], [1, MAIN, 1]))
        for given in (mask, mask[:, None], mask.astype(bool)):
            self.assertAllClose(layer(**call, att_mask=given), expected, 1e-6)

    def test_a_mask_for_all_tokens_is_not_expanded(self):
        layer = make_layer(3, "simple_relative")
        call = make_call()
        call["att_mask"] = call["att_mask"][:, 0]
        graph = (
            tf.function(lambda: layer(**call), autograph=False)
            .get_concrete_function()
            .graph
        )
        for operation in graph.get_operations():
            for output in operation.outputs:
                if output.dtype in (tf.bool, tf.int32) and output.shape.rank:
                    self.assertLessEqual(output.shape.num_elements(), 3 * 18)

    @parameterized.parameters(None, 16)
    def test_dropout_of_the_probabilities_in_training(self, top_k):
        size = 16
        layer = side_attention.SideAttention(
            size, 0, att_dropout_prob=0.25, top_k_attention=top_k
        )
        # Equal scores and one-hot values: the output is the probabilities.
        main, side = tf.zeros([8, 30, size]), tf.eye(size)
        layer_checks.check_dropout(
            self, lambda training: layer(main, side, training=training)
        )

    @parameterized.parameters(
        (None, None, None),
        ("absolute", 2, HIDDEN),
        ("absolute_add_ln", 5, HIDDEN),
        ("simple_relative", 5, None),
        ("query_dot_relative", 5, HIDDEN),
    )
    def test_weights(self, mode, rows, width):
        for num_heads in (0, 3):
            layer = make_layer(num_heads, mode, enable_default_side_input=True)
            has_norm = mode == "absolute_add_ln"
            number = 1 + 8 * (num_heads > 0) + (mode is not None) + 2 * has_norm
            self.assertLen(layer.trainable_weights, number)
            self.assertEqual((HIDDEN,), tuple(layer.default_side_input.shape))
            self.assertEqual(num_heads == 0, layer.query_projection is None)
            self.assertEqual(num_heads == 0, layer.output_projection is None)
            if num_heads:
                for name in ("query_projection", "key_projection"):
                    self.assertEqual(name, getattr(layer, name).name)
            if mode is not None:
                lookup = layer.block_position_emb_lookup
                self.assertEqual("block_position_emb_lookup", lookup.name)
                self.assertEqual(0.02, lookup.initializer_range)
                self.assertEqual(
                    (rows, width or max(num_heads, 1)),
                    tuple(lookup.embedding_table.shape),
                )
            if has_norm:
                norm = layer.block_position_emb_layer_norm
                self.assertEqual("block_position_emb_layer_norm", norm.name)
                self.assertEqual(1e-12, norm.epsilon)

    def test_errors(self):
        positions = dict(pos_embed_size=3, use_one_hot_embeddings=False)

        def make(hidden=8, heads=2, **options):
            return lambda: side_attention.SideAttention(
                hidden, heads, **options
            )

        call, layer = make_call(), make_layer(3, "absolute")
        mask = call["att_mask"]

        def attend(**changes):
            return lambda: layer(**call | changes)

        for message, function in (
            ("at least 0", make(8, -1)),
            ("multiple of num_heads", make(8, 3)),
            *(
                ("top_k_attention", make(top_k_attention=k))
                # The argument was once a flag, so bools raise an error.
                for k in (False, True, 0, -1, 1.0)
            ),
            ("'sideways'", make(pos_embed_mode="sideways", **positions)),
            *(
                (name, make(pos_embed_mode=mode, **positions | {name: None}))
                for mode in MODES[1:]
                for name in positions
            ),
            (
                "pos_embed_size",
                make(
                    pos_embed_mode="absolute",
                    **positions | dict(pos_embed_size=0),
                ),
            ),
            ("main_pos", attend(main_pos=None)),
            ("side_pos", attend(side_pos=None)),
            ("main_pos.* rank", attend(main_pos=np.zeros([BATCH, MAIN], int))),
            ("columns", attend(att_mask=mask[..., :1])),
            ("columns", attend(att_mask=mask[..., : SIDE - 1])),
            ("side_input.* rank", attend(side_input=call["side_input"][0])),
        ):
            with self.assertRaisesRegex(ValueError, message):
                function()

    def test_positions_are_ignored_without_a_mode(self):
        layer, call = make_layer(3), make_call()
        self.assertAllEqual(
            layer(**call),
            layer(**call | {"main_pos": None, "side_pos": None}),
        )


if __name__ == "__main__":
    tf.test.main()
