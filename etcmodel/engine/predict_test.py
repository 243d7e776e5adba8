import os

import tensorflow as tf

from etcmodel.engine import predict
from etcmodel.errors import UserError
from testing.tasks import CommandTestCase
from testing.tasks import write_small_saved_model
from testing.tasks import write_small_wikihop


class PredictTest(CommandTestCase):
    """Tests a SavedModel that always answers with the first candidate."""

    def setUp(self):
        super().setUp()
        self.saved_model = write_small_saved_model(self.directory)
        self.input, _ = write_small_wikihop(self.directory, 5)

    def _predict(self, **options):
        values = {
            "saved_model": self.saved_model,
            "input": self.input,
            "output": self.path("out.json"),
            **options,
        }
        return predict.predict(predict.Options(**values))

    def test_errors_name_options(self):
        for options, message in (
            ({"reading": ["a=b"]}, "`reading=a=b`: wikihop has no such"),
            ({"batch_size": 0}, "`batch_size` is 0"),
            ({"output": self.input}, "`output=.*` and `input=.*` are the same"),
        ):
            with self.assertRaisesRegex(UserError, message):
                self._predict(overwrite=True, **options)
        self.assertFalse(os.path.exists(self.path("out.json")))


if __name__ == "__main__":
    tf.test.main()
