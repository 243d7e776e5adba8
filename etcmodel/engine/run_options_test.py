import io
import os

import tensorflow as tf

from etcmodel.engine import run_options
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from testing.tasks import CommandTestCase
from testing.tasks import write_json


class RunOptionsTest(CommandTestCase):
    def test_data_may_be_named_in_several_places(self):
        path = self.path("config.json")
        data = {"task": {"train_data": {"input_path": "a"}}}
        write_json(path, data)
        for options in (
            {"params_override": data},
            {"params_override": "task.train_data.input_path=a"},
            {"config_file": [path]},
            # Accepted here; the error is raised when the file is read.
            {"config_file": [self.path("gone")]},
        ):
            run_options.check_options(
                run_options.RunOptions(model_dir="x", **options), "train"
            )
        for options in ({}, {"params_override": {"task": {"x": 1}}}):
            with self.assertRaisesRegex(UserError, "`train_data=DIR`"):
                run_options.check_options(
                    run_options.RunOptions(model_dir="x", **options), "train"
                )

    def test_notes_go_to_the_reporter(self):
        out = io.StringIO()
        run_options.parse_params(
            run_options.RunOptions(
                model_dir="x", params_override={"trainer.train_steps": 50}
            ),
            "etc/nq",
            Reporter("lines", out),
        )
        self.assertIn("is scaled to 50 steps", out.getvalue())
        self.assertFalse(os.path.exists("x"))


if __name__ == "__main__":
    tf.test.main()
