import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import fused_side_attention_test as shared
from etcmodel.models import coreference_loss

HIDDEN, ITEMS, ALL = 6, 5, 8
# Entities 7, 8 and 9; an unknown one, and one that is not there.
IDS = np.array([7, 8, 1, 7, 0, 8, 9, 1])


def coreference_reference(
    layer,
    states,
    ids,
    all_states,
    all_ids,
    labels_mask=None,
    labels_weight=None,
):
    """The loss of each item, one pair at a time, in float64."""
    states = np.asarray(states, np.float64)
    if layer.apply_linear_layer:
        states = states @ np.array(layer.linear.kernel, np.float64)
    bias = np.array(layer.batch_coref_loss_bias, np.float64)[0]
    ignored = (layer.padding_id, layer.unknown_id)
    result = []
    for i, item_id in enumerate(ids):
        total = weights = 0.0
        for j, other_id in enumerate(all_ids):
            if item_id in ignored or other_id in ignored or j == i:
                continue
            is_same = item_id == other_id
            if labels_mask is not None:
                is_same = is_same and labels_mask[i, j]
            weight = 1.0 if labels_weight is None else labels_weight[i, j]
            score = states[i] @ np.asarray(all_states[j], np.float64) + bias
            # -log(sigmoid(score)) or -log(1 - sigmoid(score))
            total += weight * np.log1p(np.exp(-score if is_same else score))
            weights += weight
        result.append(total / (weights + 1e-5))
    return np.array(result)


def make_loss(seed=0, **kwargs):
    """A built loss with random weights."""
    layer = coreference_loss.BatchCoreferenceResolutionLoss(**kwargs)
    layer.build((None, HIDDEN))
    shared.randomize(layer, seed)
    return layer


def make_items(seed=1):
    """Vectors of all items, a mask and weights of pairs."""
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=[ALL, HIDDEN]),
        rng.integers(0, 2, size=[ITEMS, ALL]).astype(bool),
        rng.uniform(size=[ITEMS, ALL]),
    )


class BatchCoreferenceResolutionLossTest(
    tf.test.TestCase, parameterized.TestCase
):
    def test_hand_computed_case(self):
        layer = coreference_loss.BatchCoreferenceResolutionLoss()
        layer.build((None, 1))
        self.assertAllEqual(layer.batch_coref_loss_bias, [0.0])
        # Probabilities of 1/4 for a product of 0, and of 3/4 for one of 1.
        layer.set_weights([np.array([-np.log(3.0)])])
        states = tf.constant([[1.0], [2 * np.log(3.0)], [0.0], [9.0], [9.0]])
        ids = tf.constant([5, 5, 7, 0, 1])
        expected = [
            -np.log(3 / 4) - np.log(3 / 4),
            -np.log(3 / 4) - np.log(3 / 4),
            -np.log(3 / 4) - np.log(3 / 4),
            0.0,
            0.0,
        ]
        self.assertAllClose(
            layer(states, ids, states, ids), np.array(expected) / 2.00001
        )

    @parameterized.product(
        apply_linear_layer=[False, True],
        ignored=[
            {},
            dict(padding_id=8, unknown_id=9),
            dict(padding_id=9, unknown_id=None),
        ],
        with_mask=[False, True],
        with_weight=[False, True],
    )
    def test_equals_the_reference(
        self, apply_linear_layer, ignored, with_mask, with_weight
    ):
        layer = make_loss(
            apply_linear_layer=apply_linear_layer, dtype="float64", **ignored
        )
        states, mask, weight = make_items()
        options = {}
        if with_mask:
            options["labels_mask"] = mask
        if with_weight:
            options["labels_weight"] = weight
        expected = coreference_reference(
            layer, states[:ITEMS], IDS[:ITEMS], states, IDS, **options
        )
        actual = layer(states[:ITEMS], IDS[:ITEMS], states, IDS, **options)
        self.assertEqual(tf.float64, actual.dtype)
        self.assertAllClose(actual, expected, 1e-9, 1e-9)
        self.assertGreater(expected.max(), 0.1)
        # The ids may have any dtype.
        actual = layer(
            states[:ITEMS],
            tf.constant(IDS[:ITEMS], tf.int64),
            states,
            tf.constant(IDS, tf.int32),
            **options,
        )
        self.assertAllClose(actual, expected, 1e-9, 1e-9)

    @parameterized.parameters(False, True)
    def test_gradients(self, apply_linear_layer):
        layer = make_loss(
            apply_linear_layer=apply_linear_layer, dtype="float64"
        )
        states, mask, weight = make_items()
        ids = (IDS[:ITEMS], IDS)

        def compute(run):
            return lambda x, y: run(x, ids[0], y, ids[1], mask, weight)

        shared.check_gradients(
            self,
            layer,
            [states[:ITEMS], states],
            compute(layer),
            compute(lambda *args: coreference_reference(layer, *args)),
        )

    def test_no_gradient_to_weights(self):
        layer = make_loss()
        states, _, weight = make_items()
        states = tf.constant(states, tf.float32)
        weight = tf.constant(weight, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(weight)
            values = layer(
                states[:ITEMS],
                IDS[:ITEMS],
                states,
                IDS,
                labels_weight=weight,
            )
        self.assertIsNone(tape.gradient(values, weight))

    def test_the_sum_is_the_loss_of_the_original(self):
        """Which leaves out equal vectors of the same id."""
        states, _, _ = make_items()
        layer = make_loss(unknown_id=None)
        bias = np.array(layer.batch_coref_loss_bias, np.float64)
        local, local_ids = states[:ITEMS], IDS[:ITEMS]
        scores = local @ states.T + bias
        same = local_ids[:, None] == IDS[None]
        distances = np.linalg.norm(local[:, None] - states[None], axis=-1)
        weights = (local_ids != 0)[:, None] * (IDS != 0)[None]
        weights = weights * ~(same & (distances < 1e-5))
        probs = 1 / (1 + np.exp(-scores))
        cross_entropy = -np.log(np.where(same, probs, 1 - probs))
        expected = (
            (weights * cross_entropy).sum(1) / (weights.sum(1) + 1e-5)
        ).sum()
        actual = layer(local, local_ids, states, IDS)
        self.assertEqual(tf.float32, actual.dtype)
        self.assertAllClose(tf.reduce_sum(actual), expected, 1e-5, 1e-5)

    def test_equal_vectors_are_partners_but_for_the_item_itself(self):
        layer = make_loss()
        layer.set_weights([np.zeros([1])])
        one, score = np.full([1, HIDDEN], 0.5), 0.25 * HIDDEN
        two, ids = np.concatenate([one, one]), np.array([7, 7])
        # Alone.
        self.assertAllEqual(layer(one, ids[:1], one, ids[:1]), [0.0])
        expected = np.log1p(np.exp(-score)) / (1 + 1e-5)
        self.assertAllClose(
            layer(two, ids, two, ids), [expected, expected], 1e-5, 1e-5
        )
        # The rows of other replicas are partners, too.
        self.assertAllClose(
            layer(one, ids[:1], two, ids), [expected], 1e-5, 1e-5
        )

    def test_what_does_not_count(self):
        """Vectors of padding and of unknown entities change nothing."""
        layer = make_loss(apply_linear_layer=True)
        states, _, _ = make_items()
        before = layer(states[:ITEMS], IDS[:ITEMS], states, IDS)
        other = np.where(((IDS == 0) | (IDS == 1))[:, None], 3.0, states)
        after = layer(other[:ITEMS], IDS[:ITEMS], other, IDS)
        self.assertAllEqual(before, after)
        self.assertAllEqual(before > 0, [True, True, False, True, False])

    def test_excluded_pairs_are_negatives(self):
        layer = make_loss()
        layer.set_weights([np.array([np.log(3.0)])])
        states = np.zeros([2, HIDDEN])
        ids = np.array([7, 7])
        for allowed, probability in ((True, 3 / 4), (False, 1 / 4)):
            values = layer(
                states, ids, states, ids, labels_mask=np.full([2, 2], allowed)
            )
            self.assertAllClose(
                values, [-np.log(probability) / 1.00001] * 2, 1e-6, 1e-6
            )
        # Without weights nothing is left.
        values = layer(states, ids, states, ids, labels_weight=np.zeros([2, 2]))
        self.assertAllEqual(values, [0.0, 0.0])

    @parameterized.product(
        policy=["mixed_bfloat16", "mixed_float16", "float32"],
        apply_linear_layer=[False, True],
    )
    def test_scores_are_float32_in_every_policy(
        self, policy, apply_linear_layer
    ):
        layer = make_loss(apply_linear_layer=apply_linear_layer, dtype=policy)
        states, mask, weight = make_items()
        args = (IDS[:ITEMS], states, IDS, mask, weight)
        expected = coreference_reference(layer, states[:ITEMS], *args)
        actual = layer(tf.constant(states[:ITEMS], tf.float32), *args)
        self.assertEqual(tf.float32, actual.dtype)
        self.assertAllClose(actual, expected, 1e-5, 1e-5)
        # States of another dtype.
        rounded = tf.constant(states, tf.bfloat16)
        exact = tf.cast(rounded, tf.float64).numpy()
        actual = layer(rounded[:ITEMS], IDS[:ITEMS], rounded, *args[2:])
        expected = coreference_reference(
            layer, exact[:ITEMS], IDS[:ITEMS], exact, *args[2:]
        )
        self.assertEqual(tf.float32, actual.dtype)
        self.assertAllClose(actual, expected, 1e-5, 1e-5)

    def test_large_scores_stay_finite(self):
        layer = make_loss()
        states = np.array([[300.0] * HIDDEN, [-300.0] * HIDDEN])
        ids = np.array([7, 7])
        values = layer(states, ids, states, ids)
        self.assertAllClose(values, [9e4 * HIDDEN] * 2, rtol=1e-4)

    @parameterized.parameters(False, True)
    def test_any_number_compiled(self, apply_linear_layer):
        layer = make_loss(apply_linear_layer=apply_linear_layer)
        states, mask, weight = make_items()

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, HIDDEN], tf.float32),
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None, HIDDEN], tf.float32),
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None, None], tf.bool),
                tf.TensorSpec([None, None], tf.float32),
            ],
            jit_compile=True,
        )
        def run(*args):
            with tf.GradientTape() as tape:
                values = layer(*args)
            return values, tape.gradient(values, layer.trainable_variables)

        for items in (2, ITEMS):
            args = (
                states[:items],
                IDS[:items],
                states,
                IDS,
                mask[:items],
                weight[:items],
            )
            values, gradients = run(
                *[
                    tf.cast(x, s.dtype)
                    for x, s in zip(args, run.input_signature, strict=True)
                ]
            )
            self.assertAllClose(
                values, coreference_reference(layer, *args), 1e-4, 1e-4
            )
            self.assertLen(gradients, 1 + apply_linear_layer)

    def test_initial_weights(self):
        layer = coreference_loss.BatchCoreferenceResolutionLoss(
            apply_linear_layer=True, initializer_range=0.5
        )
        layer.build((None, 100))
        kernel = np.array(layer.linear.kernel)
        self.assertAllClose(0.44, kernel.std(), rtol=0.05)
        self.assertLen(layer.trainable_weights, 2)
        self.assertIn("batch_coref_loss_bias", layer.batch_coref_loss_bias.name)

    def test_config_round_trip(self):
        options = dict(
            apply_linear_layer=True,
            padding_id=3,
            unknown_id=None,
            initializer_range=0.1,
            name="same_document",
        )
        layer = make_loss(**options)
        copy = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))
        config = copy.get_config()
        self.assertEqual(layer.get_config(), config)
        self.assertEqual(options, {name: config[name] for name in options})

    def test_in_a_functional_model(self):
        """Saved and loaded, for any number of items."""
        states, mask, weight = make_items()
        layer = make_loss(apply_linear_layer=True)
        inputs = [
            tf.keras.Input([HIDDEN]),
            tf.keras.Input([], dtype="int32"),
            tf.keras.Input([HIDDEN]),
            tf.keras.Input([], dtype="int32"),
            tf.keras.Input([ALL], dtype="bool"),
            tf.keras.Input([ALL]),
        ]
        model = tf.keras.Model(inputs, layer(*inputs))
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        arguments = (states[:ITEMS], IDS[:ITEMS], states, IDS, mask, weight)
        expected = coreference_reference(layer, *arguments)
        for each in (model, tf.keras.models.load_model(path)):
            actual = each(
                [
                    tf.cast(x, i.dtype)
                    for x, i in zip(arguments, inputs, strict=True)
                ]
            )
            self.assertAllClose(actual, expected, 1e-5, 1e-5)

    def test_errors(self):
        layer = make_loss()
        states = make_items()[0]
        for shape in (None, (None, None)):
            with self.assertRaisesRegex(ValueError, "item_states needs a stat"):
                coreference_loss.BatchCoreferenceResolutionLoss().build(shape)
        with self.assertRaisesRegex(ValueError, "has 2 rows, fewer than 1"):
            layer(states, IDS, states[:2], IDS[:2])
        with self.assertRaisesRegex(ValueError, "size 6, but .* 5"):
            layer(states, IDS, states[:, 1:], IDS)
        with self.assertRaisesRegex(ValueError, "'item_ids' has rank 2"):
            layer(states, IDS[None], states, IDS)
        with self.assertRaisesRegex(ValueError, "'global_item_states' has ran"):
            layer(states, IDS, states[None], IDS)
        with self.assertRaisesRegex(ValueError, "'labels_mask' has rank 1"):
            layer(states, IDS, states, IDS, labels_mask=IDS == 1)
        with self.assertRaisesRegex(ValueError, "'labels_weight' has rank 1"):
            layer(states, IDS, states, IDS, labels_weight=IDS)


if __name__ == "__main__":
    tf.test.main()
