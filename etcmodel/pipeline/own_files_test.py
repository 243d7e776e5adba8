import os
import tempfile

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.pipeline import own_files


class OwnFilesTest(tf.test.TestCase):
    """Tests on a disk and in ram://, which TensorFlow handles like gs://."""

    def setUp(self):
        super().setUp()
        self.folders = [
            tempfile.mkdtemp(dir=self.get_temp_dir()),
            f"ram://{self.id()}",
        ]
        for folder in self.folders:
            for name in ("a", "b/c"):
                self._write(folder, name)
            own_files.write(folder)

    def _write(self, folder, name):
        tf.io.gfile.makedirs(os.path.dirname(f"{folder}/{name}"))
        with tf.io.gfile.GFile(f"{folder}/{name}", "w") as stream:
            stream.write(name)

    def test_only_own_files(self):
        for folder in self.folders:
            self.assertEqual(
                {"a", "b/c", own_files.FILE}, own_files.read(folder)
            )
            own_files.check(folder)
            # Listed files may have been deleted.
            tf.io.gfile.remove(f"{folder}/b/c")
            own_files.check(folder)

    def test_foreign_files(self):
        for folder in self.folders:
            for name in ("x", "b/x", "y/x"):
                self._write(folder, name)
                with self.assertRaisesRegex(
                    UserError,
                    f"{folder} holds {name}, which etcmodel did not write",
                ):
                    own_files.check(folder)
                tf.io.gfile.remove(f"{folder}/{name}")
            own_files.check(folder)
            for name in ("x", "z"):
                self._write(folder, name)
            with self.assertRaisesRegex(UserError, "holds x and 1 more, "):
                own_files.check(folder)

    def test_links(self):
        link = os.path.join(self.folders[0], "link")
        os.symlink(self.get_temp_dir(), link)
        self.addCleanup(os.remove, link)
        with self.assertRaisesRegex(UserError, "holds link"):
            own_files.check(self.folders[0])

    def test_damaged_or_missing_list(self):
        for folder in self.folders:
            path = f"{folder}/{own_files.FILE}"
            for content in ("{", "[]", "{}", '{"files": 3}', None):
                if content is None:
                    tf.io.gfile.remove(path)
                else:
                    with tf.io.gfile.GFile(path, "w") as stream:
                        stream.write(content)
                self.assertIsNone(own_files.read(folder))
                with self.assertRaisesRegex(UserError, "was not written by th"):
                    own_files.check(folder)


if __name__ == "__main__":
    tf.test.main()
