import sys
from unittest import mock

import tensorflow as tf

from etcmodel.engine import export
from etcmodel.errors import UserError
from testing.tasks import CommandTestCase
from testing.tasks import write_run


class ExportTest(CommandTestCase):
    """Tests errors; `evaluate_test` exports a run."""

    def test_errors_name_options(self):
        with self.assertRaisesRegex(UserError, "not the directory of a run"):
            self._export(self.directory)
        write_run(self.directory, params={})
        for options, message in (
            ({}, "Pass its path as `vocab_file`"),
            ({"checkpoint": "/no"}, "`checkpoint=/no`: there is no such"),
            ({"vocab_file": "/no"}, "`vocab_file=/no`: there is no such file"),
            ({"overwrite": 3}, "`overwrite` is 3, but must be True or False"),
            ({"format": "x"}, "of saved_model, litert, onnx"),
            (
                {"format": "onnx", "license": "mit"},
                "`license` is for SavedModels. .*`format=onnx`",
            ),
        ):
            with self.assertRaisesRegex(UserError, message):
                self._export(self.directory, **options)

    def test_missing_packages_are_named_before_the_model_is_loaded(self):
        write_run(self.directory, params={})
        with open(self.path("ckpt-1.index"), "wb"):
            pass
        with (
            mock.patch.dict(sys.modules, {"tf2onnx": None}),
            self.assertRaisesRegex(UserError, r"tf2onnx: .*etcmodel\[onnx\]"),
        ):
            self._export(
                self.directory,
                vocab_file=__file__,
                checkpoint=self.path("ckpt-1"),
                format="onnx",
            )

    def _export(self, run, **options):
        export.export(
            export.Options(
                model_dir=run, output_dir=self.path("saved_model"), **options
            )
        )


if __name__ == "__main__":
    tf.test.main()
