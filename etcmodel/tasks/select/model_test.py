import math

import numpy as np
import tensorflow as tf

from etcmodel.models import EtcConfig
from etcmodel.tasks.select.task import TASK
from testing import model_inputs

# Logits of a paragraph, a title and two units. The probabilities of the last
# three are 3/4, 1/2 and 1/4.
_LOG3 = math.log(3)
_LOGITS = ((9.0, _LOG3, 0.0, -_LOG3),)
_TEXT = {
    "units": [[b"T", b"a", b"b"]],
    "unit_paragraphs": [[0, 0, 0]],
    "unit_numbers": [[-1, 0, 1]],
}


class SelectTest(tf.test.TestCase):
    def test_loss(self):
        (loss,) = (
            TASK.make_model()
            .losses(
                {"logits": tf.constant(_LOGITS)},
                {"is_relevant": tf.constant([[-1, 1, 0, 0]])},
            )
            .values()
        )
        expected = math.log(4 / 3) + math.log(2) + math.log(4 / 3)
        self.assertAllClose([expected], loss)

    def test_threshold(self):
        """Selects units by the given threshold, or by the default 0.5."""
        for threshold, expected in (
            (None, [True, False]),
            (0.6, [False, False]),
            (0.25, [True, True]),
        ):
            model = TASK.make_model(options=TASK.options(threshold=threshold))
            candidates = model.select_candidates(
                {"logits": tf.constant(_LOGITS)},
                {},
                {"global_units": tf.constant([[-1, 0, 1, 2]])},
            )
            answers = model.decode(
                candidates,
                None,
                {x: tf.ragged.constant(y) for x, y in _TEXT.items()},
            )
            self.assertAllClose([[0.5, 0.25]], answers["unit_probabilities"])
            self.assertAllEqual([expected], answers["is_selected"])
            units = model.to_prediction(
                {x: y.numpy()[0] for x, y in answers.items()}, {}
            )
            self.assertEqual(
                [(0, 0, expected[0], "a"), (0, 1, expected[1], "b")],
                [(*x[:2], *x[3:]) for x in units],
            )

    def test_prior(self):
        """The initial probability of a unit is `unit_prior`."""
        config = EtcConfig.from_preset(
            "tiny", vocab_size=20, num_hidden_layers=1, initializer_range=1e-6
        )
        model = TASK.make_model(TASK.model_options(unit_prior=0.2)).build(
            config
        )
        logits = model(model_inputs.hotpotqa())["logits"]
        self.assertAllClose(np.full([2, 11], 0.2), tf.sigmoid(logits), 1e-3)
        for prior in (0.0, 1.0):
            with self.assertRaisesRegex(
                ValueError, "^unit_prior is .*between 0 and"
            ):
                TASK.make_model(TASK.model_options(unit_prior=prior)).head(
                    config
                )


if __name__ == "__main__":
    tf.test.main()
