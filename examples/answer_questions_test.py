from unittest import mock

import tensorflow as tf

from etcmodel.estimators.estimators import Estimator
from examples import answer_questions


class ExampleTest(tf.test.TestCase):
    def test_it_learns(self):
        """The model is accurate on records that it was not trained on."""
        train = Estimator.fit
        with mock.patch.object(Estimator, "fit", autospec=True) as fit:
            fit.side_effect = train
            metrics = answer_questions.main()
        fit.assert_called_once()
        self.assertGreaterEqual(metrics["exact_match"], 0.5)


if __name__ == "__main__":
    tf.test.main()
