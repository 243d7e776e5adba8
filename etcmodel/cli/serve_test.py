from unittest import mock

import tensorflow as tf

from etcmodel.cli import serve
from testing import tasks


class ServeTest(tasks.CommandTestCase):
    def test_calls_the_function(self):
        with mock.patch.object(serve.serve, "serve") as function:
            self.assert_succeeds(
                tasks.run_cli("serve", "--model_dir=run", "--port=0")
            )
        (options, _), _ = function.call_args
        self.assertEqual(("run", 0), (options.model_dir, options.port))

    def test_an_error_is_a_sentence(self):
        self.assert_fails(
            tasks.run_cli("serve"), "Give either --saved_model or --model_dir"
        )


if __name__ == "__main__":
    tf.test.main()
