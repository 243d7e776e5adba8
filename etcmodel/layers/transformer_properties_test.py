"""Tests properties of the stack of layers that hold for any weights."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import transformer
from etcmodel.ops import attention
from testing import attention_cases
from testing.layer_checks import randomize

SIZE, RADIUS, LABELS = 6, 2, 4


def make_stack(num_hidden_layers, **options):
    return transformer.GlobalLocalTransformerLayers(
        SIZE,
        SIZE,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=2,
        local_radius=RADIUS,
        long_intermediate_size=7,
        global_intermediate_size=7,
        relative_vocab_size=LABELS,
        **options,
    )


def make_example(rng):
    """Inputs and structure of one example, of any lengths."""
    long_len, global_len = rng.integers(1, 12), rng.integers(1, 5)
    return dict(
        long_input=rng.normal(size=[long_len, SIZE]),
        global_input=rng.normal(size=[global_len, SIZE]),
        # Segments, contiguous or not.
        segment_ids=1 + rng.integers(2, size=[long_len]),
        links=rng.integers(-1, global_len, size=[long_len]),
        exempt_long=rng.binomial(1, 0.3, size=[long_len]),
        g2g_att_mask=rng.binomial(1, 0.7, size=[global_len] * 2),
        g2g_labels=rng.integers(LABELS, size=[global_len] * 2),
        long_ids=np.ones([long_len], int),
        global_ids=np.ones([global_len], int),
    )


def pad(rng, examples, extra):
    """Returns a batch of examples, padded with large noise."""
    batch = {}
    for name in examples[0]:
        arrays = [example[name] for example in examples]
        lengths = np.max([x.shape for x in arrays], axis=0)
        is_input = name.endswith("input")
        lengths[: 1 if is_input else None] += extra
        shape = [len(arrays), *lengths]
        if is_input:
            batch[name] = 100 * rng.normal(size=shape)
        else:
            # No link, and otherwise numbers that no token has.
            batch[name] = np.full(shape, -1 if name == "links" else 0)
        for row, x in zip(batch[name], arrays, strict=True):
            row[tuple(map(slice, x.shape))] = x
    return batch


def apply(stack, batch, implementation):
    """Both outputs, with masks and labels described."""
    links = [tf.constant(batch["links"])]
    mask = attention.LongGlobalMask(
        batch["long_ids"],
        batch["global_ids"],
        links,
        exempt_long=batch["exempt_long"],
    )
    labels = attention.LongGlobalLabels(links, 3, 1)
    with attention_cases.chunks_of(30):
        return stack(
            tf.constant(batch["long_input"]),
            tf.constant(batch["global_input"]),
            l2l_att_mask=attention.SegmentMask(batch["segment_ids"]),
            g2g_att_mask=batch["g2g_att_mask"],
            l2g_att_mask=mask,
            g2l_att_mask=mask,
            l2l_relative_att_ids=attention.DistanceLabels([1, 1, 0, 2, 2]),
            g2g_relative_att_ids=batch["g2g_labels"],
            l2g_relative_att_ids=labels,
            g2l_relative_att_ids=labels,
            att_implementation=implementation,
        )


class IndependenceTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters("full", "sparse", "streaming")
    def test_of_batch_mates_and_padding(self, implementation):
        stack = make_stack(1, dtype="float64")
        stack.build((None, None, SIZE))
        randomize(stack, scale=0.5)
        for seed in range(3):
            rng = np.random.default_rng(seed)
            examples = [make_example(rng) for _ in range(3)]
            together = apply(
                stack, pad(rng, examples, extra=seed), implementation
            )
            for i, example in enumerate(examples):
                alone = apply(stack, pad(rng, [example], 0), implementation)
                for x, y in zip(alone, together, strict=True):
                    self.assertAllClose(
                        x[0], y[i, : x.shape[1]], 1e-9, 1e-9, f"seed {seed}"
                    )


class ReproducibilityTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        # Whether in a graph, layers of a recomputed chain.
        (False, 0, "streaming"),
        (True, 0, "full"),
        (False, 1, "full"),
    )
    def test_the_same_seed_gives_the_same_training(
        self, in_graph, period, implementation
    ):
        rng = np.random.default_rng(0)
        streams = [
            tf.constant(rng.normal(size=[2, length, SIZE]), tf.float32)
            for length in (7, 3)
        ]
        labels = attention.DistanceLabels([1, 1, 0, 2, 2])
        l2g_labels = tf.ones([2, 7, 3], tf.int32)

        def train(seed):
            tf.keras.utils.set_random_seed(seed)
            # The last layer is never recomputed.
            stack = make_stack(
                1 + period,
                hidden_dropout_prob=0.3,
                attention_probs_dropout_prob=0.3,
                grad_checkpointing_period=period,
            )
            stack.build((None, None, SIZE))
            start = stack.get_weights()
            weights = stack.trainable_variables

            def step():
                with tf.GradientTape() as tape:
                    outputs = stack(
                        *streams,
                        l2l_relative_att_ids=labels,
                        l2g_relative_att_ids=l2g_labels,
                        att_implementation=implementation,
                        training=True,
                    )
                    loss = sum(tf.reduce_sum(tf.sin(x)) for x in outputs)
                for weight, gradient in zip(
                    weights, tape.gradient(loss, weights), strict=True
                ):
                    if gradient is not None:
                        weight.assign_sub(0.1 * gradient)
                return loss

            if in_graph:
                step = tf.function(step)
            losses = [float(step()) for _ in range(2)]
            return start, losses, stack.get_weights()

        first, second = train(1), train(1)
        for a, b in zip(
            tf.nest.flatten(first), tf.nest.flatten(second), strict=True
        ):
            self.assertAllEqual(a, b)
        self.assertNotAllClose(first[0][0], first[2][0])
        if not in_graph:
            self.assertNotEqual(first[1], train(2)[1])


if __name__ == "__main__":
    tf.test.main()
