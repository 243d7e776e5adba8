import contextlib
import inspect
import io
import re
from unittest import mock

import tensorflow as tf

from etcmodel.estimators.estimators import Estimator
from examples import classify_documents


class ExampleTest(tf.test.TestCase):
    def test_it_learns(self):
        """The model is accurate on records that it was not trained on."""
        train = Estimator.fit
        printed = io.StringIO()
        with (
            mock.patch.object(Estimator, "fit", autospec=True) as fit,
            contextlib.redirect_stdout(printed),
        ):
            fit.side_effect = train
            metrics = classify_documents.main()
        fit.assert_called_once()
        self.assertGreaterEqual(metrics["accuracy"], 0.9)
        # Comments, which README has too, show what is printed.
        code = inspect.getsource(classify_documents)
        (shown,) = re.findall(r"print\(.*\)  # (.*)", code)
        self.assertIn(shown, printed.getvalue().splitlines())


if __name__ == "__main__":
    tf.test.main()
