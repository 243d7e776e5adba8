import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import fused_side_attention_test as shared
from etcmodel.layers import recompute
from etcmodel.layers import side_attention
from etcmodel.layers import side_attention_test as base


class SkippedTokensTest(parameterized.TestCase, tf.test.TestCase):
    length = 11

    def make_layer(self, num_heads, mode, top_k, dtype="float64"):
        return base.make_layer(
            num_heads,
            mode,
            enable_default_side_input=True,
            top_k_attention=top_k,
            skip_masked_tokens=True,
            dtype=dtype,
        )

    def make_call(self, chosen, side_rank=2, mask_rank=3):
        """Some tokens of the first segment, fewer of the second, and none."""
        rng = np.random.default_rng(3)
        call = base.make_call(side_rank)
        call["main_input"] = rng.normal(
            size=[base.BATCH, self.length, base.HIDDEN]
        )
        mask = rng.binomial(1, 0.5, size=[base.BATCH, self.length, base.SIDE])
        call["att_mask"] = mask if mask_rank == 3 else mask[:, 0]
        call["att_value_mask"] = np.zeros([base.BATCH, self.length], np.int32)
        for row, number in enumerate((chosen, chosen // 2)):
            tokens = rng.permutation(self.length)[:number]
            call["att_value_mask"][row, tokens] = 1
        return call

    def expect(self, layer, call):
        call = dict(call)
        if call["att_mask"] is not None and call["att_mask"].ndim == 2:
            call["att_mask"] = np.tile(
                call["att_mask"][:, None], [1, self.length, 1]
            )
        return base.expect(layer, call)

    @parameterized.parameters(
        # Mode, heads, best, ranks of the side input and of the mask, and how
        # many tokens of the first segment; 2, 3, 6 or all 11 are calculated.
        (None, 0, None, 2, 2, 0),
        (None, 3, 2, 3, 3, 3),
        ("absolute", 3, None, 3, 2, 2),
        ("absolute_add_ln", 0, 2, 2, 3, 6),
        ("absolute_add_ln", 3, None, 2, 2, 11),
        ("simple_relative", 0, None, 3, 3, 7),
        ("simple_relative", 3, 2, 2, 2, 6),
        ("query_dot_relative", 0, 2, 3, 2, 3),
        ("query_dot_relative", 3, None, 2, 3, 2),
    )
    def test_equals_the_reference_with_gradients(
        self, mode, num_heads, top_k, side_rank, mask_rank, chosen
    ):
        layer = self.make_layer(num_heads, mode, top_k)
        call = self.make_call(chosen, side_rank, mask_rank)
        self.assertAllClose(layer(**call), self.expect(layer, call), 1e-9, 1e-9)
        inputs = [call.pop("main_input"), call.pop("side_input")]
        shared.check_gradients(
            self,
            layer,
            inputs,
            lambda a, b: layer(a, b, **call),
            lambda a, b: self.expect(
                layer, call | {"main_input": a, "side_input": b}
            ),
        )

    def test_compiled_training_step(self):
        """Where lengths are known to XLA alone."""
        layer = self.make_layer(3, "query_dot_relative", 2, dtype="float32")
        call = self.make_call(3, mask_rank=2)
        call["main_input"] = call["main_input"].astype(np.float32)
        tensors = {name: tf.constant(x) for name, x in call.items()}

        def step(call):
            with tf.GradientTape() as tape:
                tape.watch(call["main_input"])
                output = layer(**call, training=True)
                loss = tf.reduce_sum(tf.sin(output))
            gradients = tape.gradient(
                loss, [call["main_input"], *layer.trainable_weights]
            )
            return [output, *map(tf.convert_to_tensor, gradients)]

        signature = tf.nest.map_structure(
            lambda x: tf.TensorSpec(
                [size if size == base.HIDDEN else None for size in x.shape],
                x.dtype,
            ),
            tensors,
        )
        actual = tf.function(
            step, input_signature=[signature], jit_compile=True
        )(tensors)
        for first, second in zip(step(tensors), actual, strict=True):
            self.assertAllClose(first, second, 1e-3, 1e-3)
        self.assertAllClose(actual[0], self.expect(layer, call), 1e-3, 1e-3)

    @parameterized.parameters(False, True)
    def test_dropout_is_the_same_in_the_backward_pass(self, recomputes):
        layer = side_attention.SideAttention(
            base.HIDDEN, 0, att_dropout_prob=0.5, skip_masked_tokens=True
        )
        rng = np.random.default_rng(0)
        main = tf.zeros([4, 16, base.HIDDEN])
        # Values of one size each: output and gradient show what was kept.
        side = tf.constant(
            rng.normal(size=[base.SIDE, base.HIDDEN]), tf.float32
        )
        keep = tf.constant(rng.binomial(1, 0.2, size=[4, 16]))

        def attend(side):
            return layer(main, side, att_value_mask=keep, training=True)

        if recomputes:
            attend = tf.function(recompute.recompute_grad(attend))
        with tf.GradientTape() as tape:
            tape.watch(side)
            output = attend(side)
            loss = tf.reduce_sum(output)
        # Queries of 0: the output is linear in the values, the keys do not
        # matter to it, and by its own gradient is how often each was kept.
        gradient = tape.gradient(loss, side)
        self.assertAllClose(tf.reduce_sum(gradient * side), loss, 1e-4, 1e-4)
        self.assertNotAllClose(attend(side), attend(side))


if __name__ == "__main__":
    tf.test.main()
