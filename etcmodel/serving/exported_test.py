import os

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


if __name__ == "__main__":
    tf.test.main()
