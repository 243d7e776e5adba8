import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import fused_side_attention_test as shared
from etcmodel.layers import recompute
from etcmodel.layers import side_attention
from etcmodel.layers import wrappers

HIDDEN, BATCH, MAIN, SIDE, POSITIONS = 21, 3, 4, 6, 2
MODES = (
    None,
    "absolute",
    "absolute_add_ln",
    "simple_relative",
    "query_dot_relative",
)


def normalize(layer, x):
    """What a layer normalization makes of an array, in float64."""
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
    return x * np.array(layer.gamma, np.float64) + np.array(layer.beta)


def softmax_of_best(scores, k):
    """Softmax of the k highest scores of a list; 0 for the others."""
    probs = np.zeros(len(scores))
    best = np.argsort(-np.array(scores), kind="stable")[:k]
    if len(best):
        weights = np.exp(np.array(scores)[best] - max(scores))
        probs[best] = weights / weights.sum()
    return probs


def reference(
    layer,
    main,
    side,
    att_mask=None,
    main_pos=None,
    side_pos=None,
    att_value_mask=None,
):
    """The layer's output from its weights, one token and head at a time."""
    main, side = np.asarray(main, np.float64), np.asarray(side, np.float64)
    batch, main_len, hidden = main.shape
    side = np.broadcast_to(side, (batch, *side.shape[-2:]))
    heads = max(layer.num_heads, 1)
    size = hidden // heads

    def split(x):
        return x.reshape(*x.shape[:-1], heads, size)

    if layer.num_heads:
        queries = shared.project(layer.query_projection, main)
        keys = shared.project(layer.key_projection, side)
        values = shared.project(layer.value_projection, side)
    else:
        queries, keys, values = split(main), split(side), split(side)
    mode, most = layer.pos_embed_mode, layer.pos_embed_size
    if mode is not None:
        table = np.array(
            layer.block_position_emb_lookup.embedding_table, np.float64
        )
        side_pos = np.broadcast_to(side_pos, side.shape[:2])
    if mode == "absolute_add_ln":
        norm = layer.block_position_emb_layer_norm
        queries = normalize(norm, queries + split(table[main_pos])[:, None])
        keys = normalize(norm, keys + split(table[side_pos]))
    output = np.zeros([batch, main_len, heads, size])
    for b, i, h in np.ndindex(batch, main_len, heads):
        query = queries[b, i, h]
        scores, candidates = [], []
        for j in range(side.shape[1]):
            if att_mask is not None and not att_mask[b, i, j]:
                continue
            score = query @ keys[b, j, h]
            if mode == "absolute":
                score += (
                    split(table[main_pos[b]])[h]
                    @ split(table[side_pos[b, j]])[h]
                )
            elif mode in ("simple_relative", "query_dot_relative"):
                distance = int(main_pos[b]) - int(side_pos[b, j])
                row = table[max(-most, min(most, distance)) + most]
                if mode == "simple_relative":
                    score += row[h]
                else:
                    score += query @ split(row)[h]
            scores.append(score / np.sqrt(size))
            candidates.append(values[b, j, h])
        if layer.enable_default_side_input:
            default = np.array(layer.default_side_input, np.float64)
            scores.append(query @ split(default)[h] / np.sqrt(size))
            candidates.append(np.zeros(size))
        probs = softmax_of_best(scores, layer.top_k_attention)
        for prob, value in zip(probs, candidates, strict=True):
            output[b, i, h] += prob * value
    output = output.reshape(batch, main_len, hidden)
    if layer.num_heads:
        output = shared.dense(layer.output_projection, output)
    if att_value_mask is not None:
        output = output * att_value_mask[..., None]
    return output


def make_layer(num_heads=3, mode=None, hidden=HIDDEN, seed=0, **kwargs):
    """A built layer with random weights, no two of them alike."""
    if mode is not None:
        kwargs = {
            "pos_embed_mode": mode,
            "pos_embed_size": POSITIONS,
            "use_one_hot_embeddings": False,
        } | kwargs
    layer = side_attention.SideAttention(hidden, num_heads, **kwargs)
    layer.build((None, None, hidden))
    shared.randomize(layer, seed)
    return layer


def make_call(side_rank=2, hidden=HIDDEN, seed=1):
    """Arguments of a call; one token sees nothing."""
    rng = np.random.default_rng(seed)
    side_shape = [BATCH, SIDE][3 - side_rank :]
    mask = rng.binomial(1, 0.5, size=[BATCH, MAIN, SIDE])
    mask[0, 0] = 0
    return dict(
        main_input=rng.normal(size=[BATCH, MAIN, hidden]).astype(np.float32),
        side_input=rng.normal(size=[*side_shape, hidden]).astype(np.float32),
        att_mask=mask.astype(np.int32),
        # The positions of `absolute` are those below `POSITIONS`.
        main_pos=np.array([0, 1, 1], np.int32),
        side_pos=rng.integers(0, POSITIONS, size=side_shape).astype(np.int32),
    )


def with_far_positions(call):
    """The call, with positions beyond the ends of the relative tables."""
    rng = np.random.default_rng(2)
    return call | dict(
        main_pos=np.array([1, 4, 9], np.int32),
        side_pos=rng.integers(0, 10, size=call["side_pos"].shape),
    )


def expect(layer, call):
    """The reference's output for a call."""
    names = {"main_input": "main", "side_input": "side"}
    return reference(
        layer, **{names.get(name, name): x for name, x in call.items()}
    )


class ReferenceTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        mode=MODES, num_heads=[0, 1, 3, 7], default=[False, True]
    )
    def test_equals_the_reference(self, mode, num_heads, default):
        for top_k, side_rank, has_mask in (
            (None, 2, True),
            (None, 3, False),
            (2, 3, True),
            (9, 2, True),
        ):
            layer = make_layer(
                num_heads,
                mode,
                enable_default_side_input=default,
                top_k_attention=top_k,
                dtype="float64",
            )
            call = make_call(side_rank)
            if mode in ("simple_relative", "query_dot_relative"):
                call = with_far_positions(call)
            if not has_mask:
                call["att_mask"] = None
            output = layer(**call)
            self.assertEqual(output.shape, [BATCH, MAIN, HIDDEN])
            self.assertAllClose(output, expect(layer, call), 1e-9, 1e-9)

    @parameterized.product(
        mode=MODES, num_heads=[0, 3], options=[(None, 2), (2, 3)]
    )
    def test_gradients(self, mode, num_heads, options):
        top_k, side_rank = options
        layer = make_layer(
            num_heads,
            mode,
            enable_default_side_input=True,
            top_k_attention=top_k,
            dtype="float64",
        )
        call = make_call(side_rank)
        inputs = [call.pop("main_input"), call.pop("side_input")]
        shared.check_gradients(
            self,
            layer,
            inputs,
            lambda a, b: layer(a, b, **call),
            lambda a, b: reference(layer, a, b, **call),
        )

    @parameterized.parameters(*MODES[1:])
    def test_one_hot_lookups_give_the_same(self, mode):
        call = with_far_positions(make_call(3))
        layers = [
            make_layer(3, mode, use_one_hot_embeddings=one_hot)
            for one_hot in (False, True)
        ]
        gradients = []
        for layer in layers:
            with tf.GradientTape() as tape:
                output = layer(**call)
            gradients.append(tape.gradient(output, layer.trainable_weights))
        self.assertAllClose(*[layer(**call) for layer in layers], 1e-5, 1e-5)
        for first, second in zip(*gradients, strict=True):
            self.assertAllClose(
                tf.convert_to_tensor(first),
                tf.convert_to_tensor(second),
                1e-4,
                1e-4,
            )


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

    @parameterized.product(top_k=[None, 2], num_heads=[0, 3])
    def test_masked_tokens_and_no_memories(self, top_k, num_heads):
        call = make_call()
        for mode in MODES:
            layer = make_layer(num_heads, mode, top_k_attention=top_k)
            nothing = np.zeros([BATCH, MAIN, HIDDEN])
            if num_heads:
                nothing += np.array(layer.output_projection.bias)
            masked = call | {"att_mask": 0 * call["att_mask"]}
            self.assertAllClose(layer(**masked), nothing)
            for rank in (2, 3):
                empty = make_call(rank)
                empty["side_input"] = empty["side_input"][..., :0, :]
                empty["side_pos"] = empty["side_pos"][..., :0]
                empty["att_mask"] = empty["att_mask"][..., :0]
                self.assertAllClose(layer(**empty), nothing)
                empty["att_mask"] = None
                self.assertAllClose(layer(**empty), nothing)

    @parameterized.parameters(None, 2)
    def test_a_mask_for_all_tokens_of_a_segment(self, top_k):
        layer = make_layer(3, "query_dot_relative", top_k_attention=top_k)
        call = make_call()
        mask = call.pop("att_mask")[:, 1]
        expected = layer(**call, att_mask=np.tile(mask[:, None], [1, MAIN, 1]))
        for given in (mask, mask[:, None], mask.astype(bool)):
            self.assertAllClose(layer(**call, att_mask=given), expected, 1e-6)

    @parameterized.parameters(*MODES)
    def test_gathered_tokens_get_the_same(self, mode):
        layer = make_layer(3, mode, enable_default_side_input=True)
        call = make_call()
        chosen = np.array([[2, 0], [1, 3], [3, 3]])
        expected = tf.gather(layer(**call), chosen, batch_dims=1)
        for name in ("main_input", "att_mask"):
            call[name] = tf.gather(call[name], chosen, batch_dims=1)
        self.assertAllClose(layer(**call), expected, 1e-5, 1e-5)
        # Tokens of all segments may also be examples of their own.
        call["main_input"] = tf.reshape(call["main_input"], [6, 1, HIDDEN])
        call["att_mask"] = tf.reshape(call["att_mask"], [6, SIDE])
        call["main_pos"] = np.repeat(call["main_pos"], 2)
        self.assertAllClose(
            layer(**call), tf.reshape(expected, [6, 1, HIDDEN]), 1e-5, 1e-5
        )

    def test_a_mask_for_all_tokens_needs_no_larger_one(self):
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

    @parameterized.parameters(0, 3)
    def test_inside_a_residual_block(self, num_heads):
        layer = make_layer(num_heads, "simple_relative")
        block = wrappers.ResidualBlock(inner_layer=layer)
        call = make_call()
        call["att_value_mask"] = np.array([[1, 1, 0, 1]] * BATCH)
        main = call["main_input"].astype(np.float64)
        output = block(call.pop("main_input"), **call)
        expected = expect(layer, call | {"main_input": main}) + main
        self.assertAllClose(
            normalize(block.normalization_layers[0], expected),
            output,
            1e-4,
            1e-4,
        )

    @parameterized.parameters(None, 16)
    def test_dropout_of_the_probabilities_in_training(self, top_k):
        size = 16
        layer = side_attention.SideAttention(
            size, 0, att_dropout_prob=0.25, top_k_attention=top_k
        )
        # Equal scores, and one-hot values: the output is the probabilities.
        main, side = tf.zeros([8, 30, size]), tf.eye(size)
        probs = np.array(layer(main, side, training=True))
        kept = probs != 0
        self.assertBetween(kept.mean(), 0.70, 0.80)
        self.assertAllClose(probs[kept], np.full(kept.sum(), 1 / 16 / 0.75))
        self.assertNotAllEqual(probs, layer(main, side, training=True))
        for training in (None, False):
            self.assertAllClose(
                layer(main, side, training=training), 0 * probs + 1 / 16
            )
        # In a recomputed function all follows from its seed.
        outputs = []
        for is_recomputing in (False, True):
            with recompute.RecomputeContext(is_recomputing, tf.constant(3)):
                outputs.append(layer(main, side, training=True))
        self.assertAllEqual(*outputs)

    @parameterized.parameters(
        (None, None, None),
        ("absolute", 2, HIDDEN),
        ("absolute_add_ln", 5, HIDDEN),
        ("simple_relative", 5, None),
        ("query_dot_relative", 5, HIDDEN),
    )
    def test_weights(self, mode, rows, width):
        kwargs = {}
        if mode is not None:
            kwargs = dict(
                pos_embed_mode=mode,
                pos_embed_size=2,
                use_one_hot_embeddings=False,
            )
        for num_heads in (0, 3):
            layer = side_attention.SideAttention(
                HIDDEN,
                num_heads,
                enable_default_side_input=True,
                initializer=tf.keras.initializers.TruncatedNormal(stddev=0.02),
                **kwargs,
            )
            layer.build((None, None, HIDDEN))
            number = 1
            self.assertEqual((HIDDEN,), tuple(layer.default_side_input.shape))
            if num_heads:
                number += 8
                for name in ("query", "key", "value"):
                    projection = getattr(layer, f"{name}_projection")
                    self.assertEqual(f"{name}_projection", projection.name)
                    self.assertEqual(
                        (HIDDEN, HIDDEN), tuple(projection.linear.kernel.shape)
                    )
                self.assertEqual(
                    (HIDDEN,), tuple(layer.output_projection.bias.shape)
                )
            else:
                self.assertIsNone(layer.query_projection)
                self.assertIsNone(layer.output_projection)
            if mode is not None:
                number += 1
                lookup = layer.block_position_emb_lookup
                self.assertEqual("block_position_emb_lookup", lookup.name)
                if mode == "simple_relative":
                    width = max(num_heads, 1)
                self.assertEqual(
                    (rows, width), tuple(lookup.embedding_table.shape)
                )
                self.assertEqual(0.02, lookup.initializer_range)
            if mode == "absolute_add_ln":
                number += 2
                norm = layer.block_position_emb_layer_norm
                self.assertEqual("block_position_emb_layer_norm", norm.name)
                self.assertEqual(1e-12, norm.epsilon)
                self.assertEqual(
                    (7 if num_heads else HIDDEN,), tuple(norm.gamma.shape)
                )
            self.assertLen(layer.trainable_weights, number)
            self.assertEqual("side_attention", layer.name)
            shared.assert_kernels_differ(
                self,
                layer,
                1 + (4 if num_heads else 0) + (mode is not None),
            )

    @parameterized.product(
        policy=["mixed_bfloat16", "mixed_float16"],
        mode=MODES,
    )
    def test_mixed_precision(self, policy, mode):
        num_heads = 0 if mode == "absolute" else 3
        layer = make_layer(
            num_heads, mode, enable_default_side_input=True, dtype=policy
        )
        # Kernels of 1 would make scores of 50, and of bfloat16's steps there.
        layer.set_weights([0.3 * w for w in layer.get_weights()])
        call = make_call()
        with tf.GradientTape() as tape:
            output = layer(**call)
            loss = tf.reduce_mean(tf.cast(output, tf.float32) ** 2)
        shared.check_mixed_precision(self, expect(layer, call), output, policy)
        for gradient in tape.gradient(loss, layer.trainable_weights):
            self.assertEqual(gradient.dtype, tf.float32)
            self.assertTrue(np.all(np.isfinite(tf.convert_to_tensor(gradient))))

    @parameterized.parameters(
        ("absolute_add_ln", None), ("query_dot_relative", 2)
    )
    def test_saved_model_of_any_length(self, mode, top_k):
        layer = make_layer(
            3, mode, enable_default_side_input=True, top_k_attention=top_k
        )
        module = tf.Module()
        module.layer = layer
        signature = {
            "main_input": tf.TensorSpec([None, None, HIDDEN]),
            "side_input": tf.TensorSpec([None, HIDDEN]),
            "att_mask": tf.TensorSpec([None, None], tf.int32),
            "main_pos": tf.TensorSpec([None], tf.int32),
            "side_pos": tf.TensorSpec([None], tf.int32),
        }
        module.attend = tf.function(
            lambda call: layer(**call), input_signature=[signature]
        )
        path = os.path.join(self.get_temp_dir(), "saved_model")
        tf.saved_model.save(module, path)
        loaded = tf.saved_model.load(path)
        call = make_call()
        call["att_mask"] = call["att_mask"][:, 1]
        for batch, main, side in ((3, 4, 6), (1, 1, 1), (2, 3, 0), (3, 0, 2)):
            part = {
                "main_input": call["main_input"][:batch, :main],
                "side_input": call["side_input"][:side],
                "att_mask": call["att_mask"][:batch, :side],
                "main_pos": call["main_pos"][:batch],
                "side_pos": call["side_pos"][:side],
            }
            part = {name: tf.constant(x) for name, x in part.items()}
            self.assertAllClose(layer(**part), loaded.attend(part), 1e-5, 1e-5)

    @parameterized.parameters(
        ("absolute_add_ln", None, True),
        ("simple_relative", 2, True),
        ("query_dot_relative", 2, False),
    )
    def test_compiled_training_step(self, mode, top_k, one_hot):
        layer = make_layer(
            3,
            mode,
            enable_default_side_input=True,
            top_k_attention=top_k,
            use_one_hot_embeddings=one_hot,
        )
        call = make_call()
        main_input = tf.constant(call.pop("main_input"))

        def step(main_input):
            with tf.GradientTape() as tape:
                tape.watch(main_input)
                output = layer(main_input, **call)
                loss = tf.reduce_sum(tf.sin(output))
            gradients = tape.gradient(
                loss, [main_input, *layer.trainable_weights]
            )
            return output, [tf.convert_to_tensor(g) for g in gradients]

        expected = step(main_input)
        actual = tf.function(step, jit_compile=True)(main_input)
        self.assertAllClose(expected[0], actual[0], 1e-4, 1e-4)
        for first, second in zip(expected[1], actual[1], strict=True):
            self.assertAllClose(first, second, 1e-3, 1e-3)

    def test_saving(self):
        inputs = {
            name: tf.keras.Input(shape, dtype=dtype, name=name)
            for name, shape, dtype in (
                ("main_input", [None, HIDDEN], tf.float32),
                ("side_input", [HIDDEN], tf.float32),
                ("att_mask", [None], tf.int32),
                ("main_pos", [], tf.int32),
                ("side_pos", [], tf.int32),
            )
        }
        layer = side_attention.SideAttention(
            HIDDEN,
            3,
            enable_default_side_input=True,
            pos_embed_mode="absolute_add_ln",
            pos_embed_size=2,
            use_one_hot_embeddings=False,
        )
        model = tf.keras.Model(inputs, layer(**inputs))
        call = make_call()
        call["att_mask"] = call["att_mask"][:, 1]
        call = {name: tf.constant(x) for name, x in call.items()}
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = tf.keras.models.load_model(path)
        self.assertAllClose(model(call), loaded(call), 1e-6, 1e-6)
        self.assertAllClose(model(call), layer(**call), 1e-6, 1e-6)

    def test_config_round_trip(self):
        arguments = dict(
            hidden_size=6,
            num_heads=2,
            att_dropout_prob=0.2,
            enable_default_side_input=True,
            top_k_attention=3,
            pos_embed_mode="absolute_add_ln",
            pos_embed_size=4,
            use_one_hot_embeddings=True,
            skip_masked_tokens=True,
            name="given",
        )
        layer = side_attention.SideAttention(
            initializer=tf.keras.initializers.TruncatedNormal(stddev=0.01),
            **arguments,
        )
        config = layer.get_config()
        self.assertEqual({k: config[k] for k in arguments}, arguments)
        copy = type(layer).from_config(config)
        self.assertEqual(copy.get_config(), config)
        self.assertEqual(copy.initializer.get_config()["stddev"], 0.01)

    def test_errors(self):
        make = side_attention.SideAttention
        with self.assertRaisesRegex(ValueError, "at least 0"):
            make(8, -1)
        with self.assertRaisesRegex(ValueError, "multiple of num_heads"):
            make(8, 3)
        # What once was meant as on or off is neither 0 nor 1.
        for k in (False, True, 0, -1, 1.0):
            with self.assertRaisesRegex(ValueError, "top_k_attention"):
                make(8, 2, top_k_attention=k)
        positions = dict(pos_embed_size=3, use_one_hot_embeddings=False)
        with self.assertRaisesRegex(ValueError, "'sideways'"):
            make(8, 2, pos_embed_mode="sideways", **positions)
        for mode in MODES[1:]:
            for name in positions:
                with self.assertRaisesRegex(ValueError, name):
                    make(8, 2, pos_embed_mode=mode, **positions | {name: None})
        with self.assertRaisesRegex(ValueError, "pos_embed_size"):
            make(
                8,
                2,
                pos_embed_mode="absolute",
                **positions | {"pos_embed_size": 0},
            )
        call = make_call()
        layer = make_layer(3, "absolute")
        for name in ("main_pos", "side_pos"):
            with self.assertRaisesRegex(ValueError, name):
                layer(**call | {name: None})
        with self.assertRaisesRegex(ValueError, "main_pos.* rank"):
            layer(**call | {"main_pos": tf.zeros([BATCH, MAIN], tf.int32)})
        for columns in (1, SIDE - 1):
            with self.assertRaisesRegex(ValueError, "columns"):
                layer(**call | {"att_mask": call["att_mask"][..., :columns]})
        with self.assertRaisesRegex(ValueError, "side_input.* rank"):
            layer(**call | {"side_input": call["side_input"][0]})
        # Without a mode positions may be given, and are not looked at.
        layer = make_layer(3)
        self.assertAllEqual(
            layer(**call),
            layer(**call | {"main_pos": None, "side_pos": None}),
        )


if __name__ == "__main__":
    tf.test.main()
