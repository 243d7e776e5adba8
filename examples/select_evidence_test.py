from unittest import mock

import tensorflow as tf

from etcmodel.estimators.estimators import Estimator
from examples import select_evidence


class ExampleTest(tf.test.TestCase):
    def test_it_learns(self):
        """The model is accurate on records that it was not trained on."""
        train = Estimator.fit
        with mock.patch.object(Estimator, "fit", autospec=True) as fit:
            fit.side_effect = train
            metrics = select_evidence.main()
        fit.assert_called_once()
        self.assertGreaterEqual(metrics["mean_average_precision"], 0.9)
        self.assertGreaterEqual(metrics["f1"], 0.9)


if __name__ == "__main__":
    tf.test.main()
