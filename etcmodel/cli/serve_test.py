import os
from unittest import mock

import tensorflow as tf

from etcmodel.engine import serve
from testing import served_models
from testing.tasks import CommandTestCase
from testing.tasks import run_cli


class ServeTest(CommandTestCase):
    def test_flags_are_options(self):
        saved_model = self.path("model")
        served_models.write_model(saved_model)
        with mock.patch.object(serve, "serve") as run:
            self.assert_succeeds(
                run_cli(
                    "serve",
                    f"--saved_model={saved_model}",
                    "--port=0",
                    "--watch=2.5",
                    "--num_versions=2",
                    "--model_name=mine",
                )
            )
        self.assertEqual(
            serve.Options(
                saved_model=saved_model,
                port=0,
                watch=2.5,
                num_versions=2,
                model_name="mine",
            ),
            run.call_args.args[0],
        )

    def test_what_cannot_be_served(self):
        os.makedirs(self.path("1"))
        self.assert_fails(
            run_cli("serve"), "either --saved_model or --model_dir"
        )
        for arguments, message in (
            ([f"--saved_model={self.directory}"], "is no SavedModel"),
            ([f"--saved_model={self.path('other')}"], "other"),
            ([f"--model_dir={self.directory}"], "train"),
        ):
            self.assert_fails(run_cli("serve", "--port=0", *arguments), message)

    def test_help_says_how_to_ask(self):
        code, out, _ = run_cli("serve", "--helpfull")
        self.assertEqual(0, code)
        for part in (
            "/v1/models/NAME:predict",
            "curl localhost:8501",
            "--num_versions",
        ):
            self.assertIn(part, out)


if __name__ == "__main__":
    tf.test.main()
