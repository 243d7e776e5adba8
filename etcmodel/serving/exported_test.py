import json
import os
import tempfile

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.serving import exported


class ExportedTest(tf.test.TestCase):
    def test_other_directories(self):
        other = self.get_temp_dir()
        with self.assertRaisesRegex(UserError, "no saved_model.pb"):
            exported.read_metadata(other)
        tf.saved_model.save(tf.Module(), other)
        with self.assertRaisesRegex(UserError, "not one that `export`"):
            exported.read_metadata(other)
        os.mkdir(os.path.join(other, "assets.extra"))
        path = os.path.join(other, exported.METADATA_FILE)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write('{"task": "x", "options": {}}')
        self.assertEqual(
            {"task": "x", "options": {}}, exported.read_metadata(other)
        )
        for damaged in ("", "{", "[]", "{}", '{"task": "x"}'):
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(damaged)
            with self.assertRaisesRegex(
                UserError,
                f"^{path}: .*with task, options. Export the model again.$",
            ):
                exported.read_metadata(other)

    def test_converted_models(self):
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        with open(os.path.join(directory, "model.onnx"), "wb"):
            pass
        with self.assertRaisesRegex(UserError, "with `format=onnx`, not a Sav"):
            exported.read_metadata(directory)
        path = os.path.join(directory, "etcmodel.json")
        note = {"task": "x", "format": "onnx", "file": "model.onnx"}
        note |= {"inputs": {}, "outputs": {}}
        for changed, message in (
            ({}, ""),
            ({"format": "c"}, "the format is 'c', expected one of litert, onn"),
            ({"file": "../x"}, "'file' is '../x', not the name of a file"),
            ({"inputs": 1}, "'inputs' is 1, not an object"),
        ):
            with open(path, "w", encoding="utf-8") as stream:
                json.dump({**note, **changed}, stream)
            if not changed:
                self.assertEqual(note, exported.read_converted(directory))
                continue
            with self.assertRaisesRegex(UserError, f"^{path}: {message}"):
                exported.read_converted(directory)


if __name__ == "__main__":
    tf.test.main()
