"""Streaming attention, with masks described, in the whole stack of layers."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import attention_specs
from etcmodel import inner_jit
from etcmodel.layers import recompute
from etcmodel.layers import streaming_tools_test as shared
from etcmodel.layers import transformer

BATCH, LONG, GLOBAL, HIDDEN, RADIUS, LABELS = 2, 19, 4, 8, 3, 6
# Chunks of a block of long queries, or of seven long keys.
CHUNK = 7 * BATCH * 2 * GLOBAL
IMPLEMENTATIONS = ("full", "sparse", "streaming", "auto")


def make_layer(num_hidden_layers=1, **options):
    arguments = dict(
        long_hidden_size=HIDDEN,
        global_hidden_size=HIDDEN,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=2,
        local_radius=RADIUS,
        long_intermediate_size=12,
        global_intermediate_size=12,
        relative_vocab_size=LABELS,
        initializer_range=0.3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    layer = transformer.GlobalLocalTransformerLayers(**(arguments | options))
    layer.build((None, None, HIDDEN))
    return layer


def make_streams(batch=BATCH, long_len=LONG, global_len=GLOBAL):
    rng = np.random.default_rng(long_len)
    return [
        tf.constant(rng.standard_normal((batch, length, HIDDEN)), tf.float32)
        for length in (long_len, global_len)
    ]


def describe(long_input, global_input):
    """Masks and labels that follow from the lengths; the last one is padding.

    Of the long tokens, four at a time are a segment and have a global token.
    """
    batch, long_len, _ = tf.unstack(tf.shape(long_input))
    global_len = tf.shape(global_input)[1]
    position = tf.tile(tf.range(long_len)[tf.newaxis], [batch, 1])
    links = [position // 4]
    mask = attention_specs.LongGlobalMask(
        tf.cast(position < long_len - 1, tf.int32),
        tf.ones([batch, global_len], tf.int32),
        links,
        exempt_global=tf.tile(
            tf.range(global_len)[tf.newaxis] == 0, [batch, 1]
        ),
    )
    labels = attention_specs.LongGlobalLabels(links, 5, 4)
    return dict(
        l2l_att_mask=attention_specs.SegmentMask(
            tf.where(position < long_len - 1, position // 4, -1)
        ),
        l2g_att_mask=mask,
        g2l_att_mask=mask,
        l2l_relative_att_ids=attention_specs.DistanceLabels(
            [1] * 3 + [0] + [2, 3, 3]
        ),
        g2g_relative_att_ids=tf.zeros(
            [batch, global_len, global_len], tf.int32
        ),
        l2g_relative_att_ids=labels,
        g2l_relative_att_ids=labels,
    )


def spell_out():
    """The same as arrays, for the sizes at the top."""
    position = np.arange(LONG)
    segment = np.where(position < LONG - 1, position // 4, -1)
    square = segment[:, np.newaxis] == segment
    band = np.zeros((LONG, 2 * RADIUS + 1), int)
    for i in range(LONG):
        for k in range(2 * RADIUS + 1):
            if 0 <= i + k - RADIUS < LONG:
                band[i, k] = square[i, i + k - RADIUS]
    is_linked = position[:, np.newaxis] // 4 == np.arange(GLOBAL)
    is_allowed = is_linked | (np.arange(GLOBAL) == 0)
    is_allowed &= (position < LONG - 1)[:, np.newaxis]
    labels = np.where(is_linked, 5, 4)
    side_inputs = dict(
        l2l_att_mask=band,
        l2g_att_mask=is_allowed,
        g2l_att_mask=is_allowed.T,
        l2l_relative_att_ids=[[1, 1, 1, 0, 2, 3, 3]] * LONG,
        g2g_relative_att_ids=np.zeros((GLOBAL, GLOBAL)),
        l2g_relative_att_ids=labels,
        g2l_relative_att_ids=labels.T,
    )
    return {
        name: tf.constant(np.stack([x] * BATCH), tf.int32)
        for name, x in side_inputs.items()
    }


def run(layer, streams, side_inputs, training=False, **options):
    """Both outputs, and the gradients of the streams and of all weights."""
    with tf.GradientTape() as tape:
        tape.watch(streams)
        outputs = layer(*streams, training=training, **side_inputs, **options)
        loss = sum(tf.reduce_sum(tf.sin(3 * x)) for x in outputs)
    variables = layer.trainable_variables
    return outputs + tape.gradient(loss, [*streams, *variables])


class StreamingTransformerTest(parameterized.TestCase, tf.test.TestCase):
    def test_descriptions_equal_the_tensors_they_stand_for(self):
        layer = make_layer()
        streams = make_streams()
        expected = run(layer, streams, spell_out(), att_implementation="full")
        for implementation in IMPLEMENTATIONS:
            with shared.chunks_of(CHUNK, 8):
                actual = run(
                    layer,
                    streams,
                    describe(*streams),
                    att_implementation=implementation,
                )
            for a, b in zip(expected, actual, strict=True):
                self.assertAllClose(a, b, 1e-3, 1e-4, msg=implementation)

    def test_checkpointing_does_not_change_gradients(self):
        layer = make_layer(
            2,
            attention_probs_dropout_prob=0.3,
            hidden_dropout_prob=0.2,
            grad_checkpointing_period=1,
        )
        streams = make_streams()

        def step(*streams):
            # In a context all dropout follows from its seed.
            with recompute.RecomputeContext(False, tf.constant(5)):
                return run(
                    layer,
                    streams,
                    describe(*streams),
                    training=True,
                    att_implementation="streaming",
                )

        with mock.patch.object(tf, "recompute_grad", lambda f: f):
            expected = step(*streams)
        for function in (step, tf.function(step)):
            actual = function(*streams)
            for a, b in zip(expected, actual, strict=True):
                self.assertAllClose(a, b, 1e-3, 1e-4)

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    def test_mixed_precision(self, policy):
        layer = make_layer(dtype=policy)
        exact = make_layer()
        exact.set_weights(layer.get_weights())
        streams = make_streams()
        side_inputs = describe(*streams)
        expected = run(exact, streams, side_inputs)
        with shared.chunks_of(CHUNK, 8):
            actual = run(
                layer, streams, side_inputs, att_implementation="streaming"
            )
            plain = run(layer, streams, side_inputs, att_implementation="full")
        self.assertEqual(policy[len("mixed_") :], actual[0].dtype.name)
        for weight, gradient in zip(
            layer.trainable_variables, actual[4:], strict=True
        ):
            self.assertEqual(tf.float32, gradient.dtype)
            self.assertEqual(weight.shape, gradient.shape)

        def error(tensors):
            # Of all numbers together, in relation to their size.
            differences = [
                np.ravel(tf.cast(a, tf.float32) - b)
                for a, b in zip(tensors, expected, strict=True)
            ]
            return np.linalg.norm(np.concatenate(differences)) / np.linalg.norm(
                np.concatenate([np.ravel(b) for b in expected])
            )

        self.assertLess(error(actual), 2 * error(plain))

    def test_whole_training_step_compiles(self):
        layer = make_layer(attention_probs_dropout_prob=0.1)
        optimizer = tf.keras.optimizers.SGD(0.05)
        optimizer.build(layer.trainable_variables)

        @tf.function(jit_compile=True)
        def step(*streams):
            with tf.GradientTape() as tape:
                outputs = layer(
                    *streams,
                    training=True,
                    att_implementation="streaming",
                    **describe(*streams),
                )
                loss = sum(tf.reduce_mean(x[:, :, 0]) for x in outputs)
            gradients = tape.gradient(loss, layer.trainable_variables)
            optimizer.apply_gradients(
                zip(gradients, layer.trainable_variables, strict=True)
            )
            return loss

        streams = make_streams()
        with shared.chunks_of(CHUNK, 8):
            losses = [float(step(*streams)) for _ in range(10)]
        self.assertLess(sum(losses[-3:]), sum(losses[:3]))
        # Neither is to be had on a TPU.
        graph = step.get_concrete_function(*streams).graph
        for operation in shared.all_operations(graph):
            self.assertNotRegex(operation.type, "(?i)pyfunc|host|callback")
            for tensor in (*operation.inputs, *operation.outputs):
                self.assertNotEqual(tf.string, tensor.dtype, operation.name)

    def test_saved_model_of_any_length(self):
        layer = make_layer(attention_probs_dropout_prob=0.1)
        module = tf.Module()
        module.layer = layer
        spec = tf.TensorSpec([None, None, HIDDEN])

        @tf.function(input_signature=[spec, spec])
        def serve(long_input, global_input):
            outputs = layer(
                long_input,
                global_input,
                training=False,
                **describe(long_input, global_input),
            )
            return dict(zip(("long", "global"), outputs, strict=True))

        module.serve = serve
        path = self.get_temp_dir()
        with shared.chunks_of(CHUNK, 8):
            tf.saved_model.save(module, path)
        # It holds the variables, so it has to stay.
        loaded = tf.saved_model.load(path)
        for sizes in ((2, 19, 4), (1, 1, 1), (3, 40, 2), (1, 0, 3)):
            streams = make_streams(*sizes)
            expected = layer(
                *streams, **describe(*streams), att_implementation="full"
            )
            actual = loaded.serve(*streams)
            self.assertAllClose(expected[0], actual["long"], 1e-4, 1e-5)
            self.assertAllClose(expected[1], actual["global"], 1e-4, 1e-5)

    @parameterized.parameters(True, False)
    def test_pieces_are_compiled_unless_switched_off(self, is_on):
        layer = make_layer()

        @tf.function
        def step(*streams):
            return run(
                layer,
                streams,
                describe(*streams),
                att_implementation="streaming",
            )

        with (
            mock.patch.object(inner_jit, "MIN_ELEMENTS", 0),
            inner_jit.inner_jit(is_on),
        ):
            graph = step.get_concrete_function(*make_streams()).graph
        is_compiled = "_XlaMustCompile" in str(graph.as_graph_def())
        self.assertEqual(is_on, is_compiled)


if __name__ == "__main__":
    tf.test.main()
