import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models.read_twice import coreference_loss
from testing import model_references
from testing.layer_checks import randomize

HIDDEN, ITEMS, ALL = 6, 5, 8
# 7, 8 and 9 are entities, 1 is an unknown entity, and 0 is padding.
IDS = np.array([7, 8, 1, 7, 0, 8, 9, 1])


def make_loss(seed=0, **kwargs):
    """Returns a built loss with random weights."""
    layer = coreference_loss.BatchCoreferenceResolutionLoss(**kwargs)
    layer.build((None, HIDDEN))
    randomize(layer, seed)
    return layer


def make_items(seed=1):
    """Returns the vectors of all items, and the mask and weights of pairs."""
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
        # A product of 0 gives a probability of 1/4, a product of 1 gives 3/4.
        layer.set_weights([np.array([-np.log(3.0)])])
        states = tf.constant([[1.0], [2 * np.log(3.0)], [0.0], [9.0], [9.0]])
        ids = tf.constant([5, 5, 7, 0, 1])
        expected = -2 * np.log(3 / 4) / 2.00001
        self.assertAllClose(
            layer(states, ids, states, ids), [expected] * 3 + [0.0] * 2
        )

    @parameterized.parameters(
        # Any two of the four items are partners.
        (False, {}, False, False),
        (True, {}, True, True),
        (False, dict(padding_id=8, unknown_id=9), True, False),
        (True, dict(padding_id=8, unknown_id=9), False, True),
        (True, dict(padding_id=9, unknown_id=None), True, False),
        (False, dict(padding_id=9, unknown_id=None), False, True),
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
        expected = model_references.coreference_loss(
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

    def test_equal_vectors_are_partners_except_the_item_itself(self):
        layer = make_loss()
        layer.set_weights([np.zeros([1])])
        one, score = np.full([1, HIDDEN], 0.5), 0.25 * HIDDEN
        two, ids = np.concatenate([one, one]), np.array([7, 7])
        # On a single replica, an item is not its own partner.
        self.assertAllEqual(layer(one, ids[:1], one, ids[:1]), [0.0])
        expected = np.log1p(np.exp(-score)) / (1 + 1e-5)
        self.assertAllClose(
            layer(two, ids, two, ids), [expected, expected], 1e-5, 1e-5
        )
        # The rows of other replicas are partners, too.
        self.assertAllClose(
            layer(one, ids[:1], two, ids), [expected], 1e-5, 1e-5
        )

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
        expected = model_references.coreference_loss(
            layer, states[:ITEMS], *args
        )
        actual = layer(tf.constant(states[:ITEMS], tf.float32), *args)
        self.assertEqual(tf.float32, actual.dtype)
        self.assertAllClose(actual, expected, 1e-5, 1e-5)
        # States in bfloat16 give the loss of the rounded states.
        rounded = tf.constant(states, tf.bfloat16)
        exact = tf.cast(rounded, tf.float64).numpy()
        actual = layer(rounded[:ITEMS], IDS[:ITEMS], rounded, *args[2:])
        expected = model_references.coreference_loss(
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

    def test_errors(self):
        layer = make_loss()
        states = make_items()[0]
        for shape in (None, (None, None)):
            with self.assertRaisesRegex(ValueError, "item_states needs a stat"):
                coreference_loss.BatchCoreferenceResolutionLoss().build(shape)
        items = others = (states, IDS)
        for arguments, message in (
            ((*items, states[:2], IDS[:2]), "has 2 rows, fewer than 1"),
            ((*items, states[:, 1:], IDS), "size 6, but .* 5"),
            ((states, IDS[None], *others), "'item_ids' has rank 2"),
            ((*items, states[None], IDS), "'global_item_states' has rank 3"),
            ((*items, *others, IDS == 1), "'labels_mask' has rank 1"),
            ((*items, *others, None, IDS), "'labels_weight' has rank 1"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                layer(*arguments)


if __name__ == "__main__":
    tf.test.main()
