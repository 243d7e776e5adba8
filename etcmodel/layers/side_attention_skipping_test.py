import os

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

    def make_call(self, mode, chosen, side_rank=2, mask_rank=3):
        """Some tokens of the first segment, fewer of the second, and none."""
        rng = np.random.default_rng(3)
        call = base.make_call(side_rank)
        if mode in ("simple_relative", "query_dot_relative"):
            call = base.with_far_positions(call)
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

    @parameterized.product(
        mode=[None, "simple_relative", "query_dot_relative"],
        options=[(0, None, 2, 2), (3, 2, 3, 3), (3, None, 3, 2)],
        # Of 11, 2, 3, 6 and all are calculated.
        chosen=[0, 2, 3, 6, 7],
    )
    def test_equals_the_reference(self, mode, options, chosen):
        num_heads, top_k, side_rank, mask_rank = options
        layer = self.make_layer(num_heads, mode, top_k)
        call = self.make_call(mode, chosen, side_rank, mask_rank)
        self.assertAllClose(layer(**call), self.expect(layer, call), 1e-9, 1e-9)

    @parameterized.product(
        mode=base.MODES, options=[(0, None, 2), (3, 2, 3)], chosen=[2, 6, 11]
    )
    def test_gradients(self, mode, options, chosen):
        num_heads, top_k, mask_rank = options
        layer = self.make_layer(num_heads, mode, top_k)
        call = self.make_call(mode, chosen, mask_rank=mask_rank)
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

    @parameterized.product(
        mode=["absolute_add_ln", "query_dot_relative"], static=[False, True]
    )
    def test_compiled_training_step(self, mode, static):
        """Also where lengths are known to XLA alone."""
        layer = base.make_layer(3, mode, skip_masked_tokens=True)
        call = self.make_call(mode, 3, mask_rank=2)
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
            return output, [tf.convert_to_tensor(g) for g in gradients]

        signature = {
            name: tf.TensorSpec(
                x.shape
                if static
                else [
                    size if size == base.HIDDEN else None for size in x.shape
                ],
                x.dtype,
            )
            for name, x in tensors.items()
        }
        expected = step(tensors)
        actual = tf.function(
            step, input_signature=[signature], jit_compile=True
        )(call)
        self.assertAllClose(expected[0], actual[0], 1e-4, 1e-4)
        self.assertAllClose(expected[0], self.expect(layer, call), 1e-3, 1e-3)
        for first, second in zip(expected[1], actual[1], strict=True):
            self.assertAllClose(first, second, 1e-3, 1e-3)

    @parameterized.product(
        policy=["mixed_bfloat16", "mixed_float16"], top_k=[None, 2]
    )
    def test_mixed_precision(self, policy, top_k):
        mode = "query_dot_relative"
        layer = self.make_layer(3, mode, top_k, dtype=policy)
        # Kernels of 1 would make scores of 50, and of bfloat16's steps there.
        layer.set_weights([0.3 * w for w in layer.get_weights()])
        call = self.make_call(mode, 3)
        with tf.GradientTape() as tape:
            output = layer(**call)
            loss = tf.reduce_mean(tf.cast(output, tf.float32) ** 2)
        shared.check_mixed_precision(
            self, self.expect(layer, call), output, policy
        )
        for gradient in tape.gradient(loss, layer.trainable_weights):
            self.assertEqual(tf.float32, gradient.dtype)
            self.assertTrue(np.all(np.isfinite(tf.convert_to_tensor(gradient))))

    def test_saved_model_of_any_length(self):
        layer = base.make_layer(
            3, enable_default_side_input=True, skip_masked_tokens=True
        )
        module = tf.Module()
        module.layer = layer
        module.attend = tf.function(
            lambda main, side, keep: layer(main, side, att_value_mask=keep),
            input_signature=[
                tf.TensorSpec([None, None, base.HIDDEN]),
                tf.TensorSpec([None, base.HIDDEN]),
                tf.TensorSpec([None, None], tf.int32),
            ],
        )
        path = os.path.join(self.get_temp_dir(), "saved_model")
        tf.saved_model.save(module, path)
        loaded = tf.saved_model.load(path)
        call = self.make_call(None, 4)
        main = call["main_input"].astype(np.float32)
        side, keep = call["side_input"], call["att_value_mask"]
        for batch, length in ((3, 11), (1, 1), (2, 8), (2, 0), (0, 3)):
            part = main[:batch, :length], side, keep[:batch, :length]
            expected = base.reference(
                layer, part[0], side, att_value_mask=part[2]
            )
            self.assertAllClose(
                loaded.attend(*map(tf.constant, part)), expected, 1e-4, 1e-4
            )

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
            attend = recompute.recompute_grad(attend)
        attend = tf.function(attend)
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
