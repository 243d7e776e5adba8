"""Tests `return_attention_scores` of all layers that have this argument."""

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import layers
from etcmodel.ops import attention
from testing import model_inputs
from testing.layer_checks import randomize

BATCH, LONG, GLOBAL, RADIUS, HEADS, LABELS = 2, 7, 3, 2, 2, 6


def make_fused(**options):
    layer = layers.FusedGlobalLocalAttention(
        8, 8, HEADS, RADIUS, relative_vocab_size=LABELS, **options
    )
    layer.build((None, None, 8))
    randomize(layer)
    return layer


def make_streams():
    rng = np.random.default_rng(0)
    return [
        tf.constant(rng.normal(size=[BATCH, n, 8]), tf.float32)
        for n in (LONG, GLOBAL)
    ]


class ScoresTestCase(tf.test.TestCase, parameterized.TestCase):
    def check(self, scores, n=LONG, m=GLOBAL):
        """Checks the scores' shapes, and that each query's scores sum to 1."""
        shapes = {
            "l2l": (BATCH, HEADS, n, 2 * RADIUS + 1),
            "l2g": (BATCH, HEADS, n, GLOBAL),
            "g2g": (BATCH, HEADS, m, GLOBAL),
            "g2l": (BATCH, HEADS, m, LONG),
        }
        self.assertEqual(
            shapes, {name: tuple(x.shape) for name, x in scores.items()}
        )
        sums = {name: tf.reduce_sum(x, -1) for name, x in scores.items()}
        for first, second in (("l2l", "l2g"), ("g2g", "g2l")):
            total = sums[first] + sums[second]
            self.assertAllClose(total, tf.ones_like(total))

    def check_weighed(self, layer, output, *pieces):
        """Checks that probabilities times values give the output."""
        weighed = sum(
            np.einsum("bhij,bjhv->bihv", scores, values)
            for scores, values in pieces
        )
        self.assertAllClose(
            layer.output_projection(weighed.reshape(BATCH, LONG, 8)),
            output,
            rtol=1e-5,
            atol=1e-5,
        )


class FusedGlobalLocalAttentionTest(ScoresTestCase):
    @pytest.mark.both_kerases
    def test_scores_weigh_the_values(self):
        layer = make_fused()
        call = model_inputs.make_attention_call(1, LONG, GLOBAL, RADIUS)
        expected = layer(**call, att_implementation="streaming")
        outputs, scores = layer(
            **call,
            att_implementation="streaming",
            return_attention_scores=True,
        )
        self.check(scores)
        self.assertAllEqual(expected[0], outputs[0])
        self.assertAllEqual(expected[1], outputs[1])
        # Computes each query's output from its probabilities and the values.
        long, others = call["long_input"], call["global_input"]
        near = np.arange(LONG)[:, None] + np.arange(-RADIUS, RADIUS + 1)
        near = np.clip(near, 0, LONG - 1)
        weighed = np.einsum(
            "bhik,bikhv->bihv",
            scores["l2l"],
            layer.l2l_value_projection(long).numpy()[:, near],
        )
        weighed += np.einsum(
            "bhij,bjhv->bihv",
            scores["l2g"],
            layer.l2g_value_projection(others),
        )
        self.assertAllClose(
            outputs[0],
            layer.long_output_projection(weighed.reshape(BATCH, LONG, 8)),
            rtol=1e-5,
            atol=1e-5,
        )
        weighed = sum(
            np.einsum("bhij,bjhv->bihv", scores[name], values)
            for name, values in (
                ("g2g", layer.g2g_value_projection(others)),
                ("g2l", layer.g2l_value_projection(long)),
            )
        )
        self.assertAllClose(
            outputs[1],
            layer.global_output_projection(weighed.reshape(BATCH, GLOBAL, 8)),
            rtol=1e-5,
            atol=1e-5,
        )

    @parameterized.parameters(([6, 0],), ([[6, 0], [1, 2]],))
    @pytest.mark.both_kerases
    def test_scores_of_selected_queries(self, positions):
        layer = make_fused()
        call = model_inputs.make_attention_call(1, LONG, GLOBAL, RADIUS)
        _, expected = layer(**call, return_attention_scores=True)
        _, scores = layer(
            **call,
            return_attention_scores=True,
            long_query_positions=positions,
            global_query_positions=tf.constant([1]),
        )
        self.check(scores, n=2, m=1)
        for name in ("l2l", "l2g"):
            rows = np.broadcast_to(positions, (BATCH, 2))
            for b in range(BATCH):
                self.assertAllClose(
                    expected[name].numpy()[b][:, rows[b]], scores[name][b]
                )
        for name in ("g2g", "g2l"):
            self.assertAllClose(expected[name][:, :, 1:2], scores[name])

    def test_scores_are_before_dropout(self):
        layer = make_fused(att_dropout_prob=0.5)
        call = model_inputs.make_attention_call(1, LONG, GLOBAL, RADIUS)
        options = dict(return_attention_scores=True)
        _, expected = layer(**call, **options, training=False)
        _, scores = layer(**call, **options, training=True)
        self.assertAllClose(expected, scores)

    def test_observed_scores(self):
        """The observer can compute the same scores, of any queries."""
        layer, observed = make_fused(), []
        layer.score_observer = lambda *functions: observed.append(functions)
        _, expected = layer(*make_streams(), return_attention_scores=True)
        ((long_scores, global_scores),) = observed
        for names, found in (
            (("l2l", "l2g"), long_scores([5, 1])),
            (("g2g", "g2l"), global_scores([2, 1])),
        ):
            rows = [5, 1] if names[0] == "l2l" else [2, 1]
            for name, scores in zip(names, found, strict=True):
                self.assertAllClose(
                    tf.gather(expected[name], rows, axis=2), scores
                )

    def test_in_a_functional_model(self):
        layer = make_fused()
        inputs = [tf.keras.Input((None, 8)) for _ in range(2)]
        outputs, scores = layer(*inputs, return_attention_scores=True)
        model = tf.keras.Model(inputs, [*outputs, *scores.values()])
        results = model(make_streams())
        self.check(dict(zip(scores, results[2:], strict=True)))


class StackTest(ScoresTestCase):
    @parameterized.parameters(False, True)
    @pytest.mark.both_kerases
    def test_scores_of_each_layer(self, use_pre_activation_order):
        stack = layers.GlobalLocalTransformerLayers(
            8,
            8,
            num_hidden_layers=3,
            num_attention_heads=HEADS,
            local_radius=RADIUS,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer_range=0.3,
            use_pre_activation_order=use_pre_activation_order,
            grad_checkpointing_period=1,
        )
        streams = make_streams()
        for training in (False, True):
            expected = stack(*streams, training=training)
            outputs, scores = stack(
                *streams,
                return_attention_scores=True,
                long_query_positions=[3, 4],
                training=training,
            )
            self.assertAllClose(expected[0], outputs[0])
            self.assertAllClose(expected[1], outputs[1])
            self.assertLen(scores, 3)
            for scores_of_layer in scores:
                self.check(scores_of_layer, n=2)
            self.assertNotAllClose(scores[0]["l2l"], scores[1]["l2l"])


class OneSoftmaxTest(ScoresTestCase):
    @pytest.mark.both_kerases
    def test_relative_attention(self):
        layer = layers.RelativeAttention(8, HEADS, relative_vocab_size=LABELS)
        stream, others = make_streams()
        ids = np.random.default_rng(1).integers(LABELS, size=[2, LONG, GLOBAL])
        call = dict(to_seq=others, relative_att_ids=tf.constant(ids))
        expected = layer(stream, **call)
        output, scores = layer(stream, **call, return_attention_scores=True)
        self.assertAllEqual(expected, output)
        self.assertEqual((BATCH, HEADS, LONG, GLOBAL), tuple(scores.shape))
        self.check_weighed(
            layer, output, (scores, layer.value_projection(others))
        )

    @parameterized.parameters(False, True)
    def test_attention_to_tokens_and_a_side_input(self, has_side):
        layer = layers.FusedSideAttention(8, HEADS)
        stream, others = make_streams()
        call = {"side_input": others} if has_side else {}
        output, (main, side) = layer(
            stream, **call, return_attention_scores=True
        )
        self.assertAllEqual(layer(stream, **call), output)
        pieces = [(main, layer.main_value_projection(stream))]
        if has_side:
            pieces.append((side, layer.side_value_projection(others)))
        else:
            self.assertEqual((BATCH, HEADS, LONG, 0), tuple(side.shape))
        self.check_weighed(layer, output, *pieces)
        observed = []
        layer.score_observer = observed.append
        layer(stream, **call)
        found = observed[0](1)
        self.assertLen(found, len(pieces))
        for (expected, _), scores in zip(pieces, found, strict=True):
            self.assertAllClose(expected[1], scores[:, 0])

    def test_attention_to_a_side_input(self):
        layer = layers.SideAttention(8, HEADS, enable_default_side_input=True)
        stream, others = make_streams()
        keep = np.array([[1, 0, 1, 1, 0, 0, 1]] * BATCH)
        call = dict(side_input=others, att_value_mask=keep)
        output, scores = layer(stream, **call, return_attention_scores=True)
        self.assertAllClose(layer(stream, **call), output)
        self.check_weighed(
            layer, output, (scores, layer.value_projection(others))
        )
        observed = []
        layer.score_observer = observed.append
        layer(stream, **call)
        (found,) = observed[0](1)
        self.assertAllClose(scores[1], found[:, 0])
        sums = np.sum(scores, -1)
        chosen = keep[:, np.newaxis].repeat(HEADS, axis=1) == 1
        self.assertTrue(np.all((0 < sums[chosen]) & (sums[chosen] < 1)))
        self.assertAllEqual(sums[~chosen], np.zeros_like(sums[~chosen]))

    @pytest.mark.both_kerases
    def test_stack_with_relative_labels(self):
        stack = layers.RelativeTransformerLayers(
            8, 2, HEADS, relative_vocab_size=LABELS, initializer_range=0.3
        )
        stream, _ = make_streams()
        output, scores = stack(stream, return_attention_scores=True)
        self.assertAllClose(stack(stream), output)
        self.assertLen(scores, 2)
        for x in scores:
            self.assertEqual((BATCH, HEADS, LONG, LONG), tuple(x.shape))
            self.assertAllClose(np.sum(x, -1), np.ones([BATCH, HEADS, LONG]))
        self.assertNotAllClose(*scores)

    @parameterized.product(heads=(None, 1), has_side=(True, False))
    @pytest.mark.both_kerases
    def test_stack_with_a_side_input(self, heads, has_side):
        stack = layers.TransformerWithSideInputLayers(
            8,
            2,
            HEADS,
            initializer_range=0.3,
            num_cross_attention_heads=heads,
            grad_checkpointing_period=1,
        )
        stream, others = make_streams()
        call = {"side_input": others} if has_side else {}
        output, scores = stack(stream, **call, return_attention_scores=True)
        self.assertAllClose(stack(stream, **call), output)
        self.assertLen(scores, 2)
        for x in scores:
            total = np.sum(x["main"], -1)
            size = GLOBAL if has_side else 0
            if heads is None:
                self.assertEqual(size, x["side"].shape[-1])
                total = total + np.sum(x["side"], -1)
            else:
                # Attention to the memory has its own softmax.
                self.assertEqual((BATCH, 1, LONG, size), tuple(x["side"].shape))
                self.assertAllClose(
                    np.sum(x["side"], -1),
                    np.full([BATCH, 1, LONG], float(has_side)),
                )
            self.assertAllClose(total, np.ones([BATCH, HEADS, LONG]))

    @parameterized.parameters(None, 1)
    @pytest.mark.both_kerases
    def test_without_a_side_input_in_a_functional_model(self, heads):
        stack = layers.TransformerWithSideInputLayers(
            8, 1, HEADS, num_cross_attention_heads=heads
        )
        inputs = tf.keras.Input((LONG, 8))
        _, (scores,) = stack(inputs, return_attention_scores=True)
        model = tf.keras.Model(inputs, [scores["main"], scores["side"]])
        main, side = model(make_streams()[0])
        self.assertEqual((BATCH, HEADS, LONG, LONG), tuple(main.shape))
        self.assertEqual((BATCH, heads or HEADS, LONG, 0), tuple(side.shape))

    def test_residual_block_returns_scores(self):
        layer = layers.ResidualBlock(layers.RelativeAttention(8, HEADS))
        stream, _ = make_streams()
        output, scores = layer(stream, return_attention_scores=True)
        self.assertAllEqual(layer(stream), output)
        self.assertEqual((BATCH, HEADS, LONG, LONG), tuple(scores.shape))

    def test_local_attention(self):
        layer = layers.QkvRelativeLocalAttention(RADIUS)
        x = tf.reshape(make_streams()[0], [BATCH, LONG, HEADS, 4])
        mask = attention.SegmentMask([[0, 0, 0, 1, 1, 1, 1]] * BATCH)
        call = dict(queries=x, keys=x, values=x, att_mask=mask)
        output, (near, side) = layer(
            **call, return_attention_scores=True, query_positions=[0, 3]
        )
        self.assertAllEqual(layer(**call), output)
        self.assertEqual((BATCH, HEADS, 2, 0), tuple(side.shape))
        self.assertEqual((BATCH, HEADS, 2, 2 * RADIUS + 1), tuple(near.shape))
        # Neither query attends to keys before itself.
        self.assertAllEqual(near[..., :RADIUS], tf.zeros([BATCH, HEADS, 2, 2]))
        self.assertAllClose(tf.reduce_sum(near, -1), np.ones([2, HEADS, 2]))


if __name__ == "__main__":
    tf.test.main()
