import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.serving.saved_model import model_variables
from etcmodel.tasks.read_twice_pretrain import model as model_lib
from testing import model_references
from testing import small_read_twice


def make_model(seed=0, **kwargs):
    """Makes a small model with random weights."""
    options = {
        name: kwargs.pop(name)
        for name in ("use_coreference", "cross_block_attention_mode")
        if name in kwargs
    }
    config = small_read_twice.make_config(**(small_read_twice.PAPER | kwargs))
    model = model_lib.PretrainModel(config, **options)
    rng = np.random.default_rng(seed)
    model.set_weights(
        [w + 0.4 * rng.normal(size=w.shape) for w in model.get_weights()]
    )
    return model


def make_inputs():
    batch = small_read_twice.make_batch()
    rng = np.random.default_rng(2)
    positions = rng.integers(0, small_read_twice.LENGTH, size=[5, 2])
    return batch | {"masked_positions": tf.constant(positions, tf.int32)}


class PretrainModelTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("doc", "block")
    def test_equals_the_reference(self, mode):
        model = make_model(cross_block_attention_mode=mode)
        inputs = make_inputs()
        outputs = model(inputs)
        hidden = model_references.read_twice(model.encoder, inputs, mode)
        positions = inputs["masked_positions"].numpy()
        self.assertAllClose(
            outputs["logits"],
            model_references.language_model_head(
                model.head,
                hidden[np.arange(5)[:, None], positions],
                np.array(model.encoder.get_token_embedding_table()),
            ),
            1e-3,
            1e-3,
        )
        features = {k: v for k, v in inputs.items() if k != "masked_positions"}
        memory = model.encoder(**features).local_summary
        labels = inputs["annotation_labels"].numpy().reshape(-1)
        self.assertAllClose(
            outputs["coreference_losses"],
            model_references.coreference_loss(
                model.coreference, memory.states, labels, memory.states, labels
            ),
            1e-3,
            1e-3,
        )
        # Unknown entities and padding have no loss.
        self.assertAllEqual(outputs["is_coreferent"], labels > 1)

    def test_without_coreference(self):
        model = make_model(use_coreference=False, summary_mode="cls")
        self.assertEqual(["logits"], list(model(make_inputs())))

    def test_gradients_reach_all_weights(self):
        """Only biases of keys have no gradient: softmax cancels them."""
        model = make_model()
        with tf.GradientTape() as tape:
            outputs = model(make_inputs(), training=True)
            loss = tf.reduce_sum(tf.sin(outputs["logits"]))
            loss += tf.reduce_sum(outputs["coreference_losses"])
        variables = [v for v in model_variables(model) if v.trainable]
        unreached = []
        for variable, gradient in zip(
            variables, tape.gradient(loss, variables), strict=True
        ):
            self.assertIsNotNone(gradient, variable.name)
            gradient = tf.convert_to_tensor(gradient)
            self.assertAllInRange(gradient, -1e4, 1e4)
            if tf.reduce_max(tf.abs(gradient)) < 1e-4:
                unreached.append(variable)
        # Each of the two reads has one such bias.
        self.assertEqual([[8], [8]], [list(x.shape) for x in unreached])
        for variable in unreached:
            self.assertIn("bias", variable.name)

    def test_coreference_needs_memories_of_mentions(self):
        with self.assertRaisesRegex(ValueError, "summary_mode is 'cls'"):
            make_model(summary_mode="cls")


if __name__ == "__main__":
    tf.test.main()
