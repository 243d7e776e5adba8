"""Compares the stack and its gradients with a NumPy reference in float64."""

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import transformer
from testing import attention_cases as tools
from testing import model_inputs
from testing import references
from testing.layer_checks import check_gradients
from testing.layer_checks import randomize

LONG, GLOBAL, SIZE, RADIUS = 7, 3, 8, 2


def make_stack(**options):
    """Returns a stack of two float64 layers with random weights."""
    arguments = dict(
        long_hidden_size=SIZE,
        global_hidden_size=SIZE,
        num_hidden_layers=2,
        num_attention_heads=2,
        local_radius=RADIUS,
        long_intermediate_size=9,
        global_intermediate_size=9,
        relative_vocab_size=model_inputs.RELATIVE_VOCAB,
        dtype="float64",
    )
    stack = transformer.GlobalLocalTransformerLayers(**(arguments | options))
    stack.build((None, None, SIZE))
    randomize(stack, scale=0.5)
    return stack


def make_call(global_size):
    """Returns both inputs, and all masks and labels.

    All keys of one token of each stream are masked.
    """
    call = model_inputs.make_attention_call(
        0, LONG, GLOBAL, RADIUS, SIZE, global_size
    )
    call = {name: np.array(x) for name, x in call.items()}
    for stream, row in (("l2", 4), ("g2", 1)):
        for piece in ("l", "g"):
            call[f"{stream}{piece}_att_mask"][0, row] = 0
    inputs = [call.pop("long_input"), call.pop("global_input")]
    return [x.astype(np.float64) for x in inputs], call


class TransformerReferenceTest(parameterized.TestCase, tf.test.TestCase):
    def check(self, described=False, **options):
        pre = options.get("use_pre_activation_order", False)
        stack = make_stack(**options)
        streams, side_inputs = make_call(stack.global_hidden_size)
        given = dict(side_inputs)
        if described:
            specs, arrays = tools.make_specs(
                np.random.default_rng(0), 2, LONG, GLOBAL, RADIUS
            )
            for name in ("att_mask", "relative_att_ids"):
                given[f"l2l_{name}"] = specs[name]
                given[f"l2g_{name}"] = specs[f"side_{name}"]
                given[f"g2l_{name}"] = specs[f"side_{name}"]
                side_inputs[f"l2l_{name}"] = arrays[name]
                side_inputs[f"l2g_{name}"] = arrays[f"side_{name}"]
                side_inputs[f"g2l_{name}"] = np.swapaxes(
                    arrays[f"side_{name}"], 1, 2
                )

        def expected(*streams):
            outputs = references.transformer(
                stack, list(streams), side_inputs, pre
            )
            return np.concatenate([x.ravel() for x in outputs])

        for implementation in ("full", "sparse", "streaming"):

            def actual(*streams):
                outputs = stack(
                    *streams,
                    **given,
                    att_implementation=implementation,  # noqa: B023
                )
                return tf.concat([tf.reshape(x, [-1]) for x in outputs], 0)

            with (
                self.subTest(implementation),
                tools.chunks_of(1),
            ):
                self.assertAllClose(
                    actual(*streams), expected(*streams), 1e-9, 1e-9
                )
                check_gradients(self, stack, streams, actual, expected)

    @pytest.mark.both_kerases
    def test_original_options(self):
        self.check()

    def test_masks_and_labels_are_described(self):
        self.check(described=True)

    def test_nothing_is_shared_and_norms_come_first(self):
        self.check(
            global_hidden_size=6,
            att_size_per_head=3,
            global_intermediate_size=5,
            share_feed_forward_params=False,
            share_qkv_projections=False,
            use_pre_activation_order=True,
        )

    def test_other_sharing_and_one_hot_lookup(self):
        self.check(
            share_qkv_projections=False,
            share_kv_projections=True,
            share_att_output_projection=True,
            use_one_hot_lookup=True,
        )


if __name__ == "__main__":
    tf.test.main()
