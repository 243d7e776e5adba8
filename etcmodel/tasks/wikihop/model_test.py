import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.conformance.cases import randomize
from etcmodel.models import EtcConfig
from etcmodel.tasks.wikihop import model as model_lib


def example_features(batch=2):
    """Two candidates, a query token and a document of two sentences."""
    features = {
        "long_token_ids": [5, 6, 7, 8, 5, 9, 10, 0, 0, 0, 0, 0],
        "long_token_type_ids": [4, 4, 3, 1, 1, 1, 1, 0, 0, 0, 0, 0],
        "long_sentence_ids": [0, 1, 2, 4, 4, 5, 5, -1, -1, -1, -1, -1],
        "long_paragraph_ids": [-1, -1, -1, 3, 3, 3, 3, -1, -1, -1, -1, -1],
        "long_paragraph_breakpoints": [1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0],
        "l2g_linked_ids": [0, 1, -1, -1, 0, -1, -1, -1, -1, -1, -1, -1],
        "global_token_ids": [4, 4, 3, 5, 1, 1, 0, 0],
        "global_token_type_ids": [6, 6, 5, 7, 0, 0, 0, 0],
        "global_paragraph_breakpoints": [1, 1, 1, 0, 0, 1, 0, 0],
    }
    return {
        name: tf.tile(tf.constant([value], tf.int32), [batch, 1])
        for name, value in features.items()
    }


class ModelTest(tf.test.TestCase, parameterized.TestCase):
    def _model(self, config=None, **options):
        config = config or EtcConfig.from_preset(
            "tiny", vocab_size=20, num_hidden_layers=1
        )
        model = model_lib.build_wikihop_model(config, **options)
        randomize(model)
        return model

    def test_logits_of_candidates_only(self):
        model = self._model()
        logits = model(example_features())["logits"]
        self.assertAllInRange(logits[:, :2], -100.0, 100.0)
        self.assertAllEqual(tf.fill([2, 6], -10000.0), logits[:, 2:])

    def test_links_change_the_logits(self):
        features = example_features()
        unlinked = dict(
            features, l2g_linked_ids=tf.fill([2, 12], tf.constant(-1))
        )
        model = self._model()
        self.assertNotAllClose(
            model(features)["logits"][:, :2],
            model(unlinked)["logits"][:, :2],
        )
        model = self._model(use_links=False)
        self.assertAllEqual(
            model(features)["logits"], model(unlinked)["logits"]
        )

    @parameterized.parameters(True, False)
    def test_hard_mask_exempts_candidates(self, exempt):
        """Without the exemption a candidate sees its own tokens only."""
        config = EtcConfig.from_preset(
            "tiny", vocab_size=20, num_hidden_layers=1, use_hard_g2l_mask=True
        )
        model = self._model(
            config,
            candidate_ignore_hard_g2l=exempt,
            query_ignore_hard_g2l=False,
        )
        features = example_features()
        ids = features["long_token_ids"].numpy()
        ids[:, 5:7] = 11  # Other words in a sentence without a mention.
        changed = dict(features, long_token_ids=tf.constant(ids))
        # In one layer they reach a candidate only by its own attention.
        before = model(features)["logits"][:, :2]
        after = model(changed)["logits"][:, :2]
        if exempt:
            self.assertNotAllClose(before, after)
        else:
            self.assertAllEqual(before, after)


class LossTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.logits = tf.constant(
            [[1.0, 2.0, 0.5, -10000.0], [0.0, 3.0, -10000.0, -10000.0]]
        )
        self.types = tf.constant([[6, 6, 6, 5], [6, 6, 5, 7]])
        self.labels = tf.constant([2, 1])
        self.log_probs = [
            np.log(np.exp(row) / np.exp(row).sum())
            for row in ([1.0, 2.0, 0.5], [0.0, 3.0])
        ]

    def test_cross_entropy(self):
        losses = model_lib.example_losses(self.logits, self.labels, self.types)
        self.assertAllClose(
            [-self.log_probs[0][2], -self.log_probs[1][1]], losses
        )

    def test_label_smoothing_goes_to_candidates(self):
        losses = model_lib.example_losses(
            self.logits, self.labels, self.types, label_smoothing=0.3
        )
        expected = [
            -(np.array([0.1, 0.1, 0.8]) * self.log_probs[0]).sum(),
            -(np.array([0.15, 0.85]) * self.log_probs[1]).sum(),
        ]
        self.assertAllClose(expected, losses)


if __name__ == "__main__":
    tf.test.main()
