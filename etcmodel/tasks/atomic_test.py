import os
import tempfile

import tensorflow as tf

from etcmodel.tasks import atomic
from etcmodel.tasks.errors import UserError


class AtomicTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = tempfile.mkdtemp(dir=self.get_temp_dir())

    def _path(self, *names):
        return os.path.join(self.root, *names)

    def _read(self, *names):
        with open(self._path(*names), encoding="utf-8") as stream:
            return stream.read()

    def test_file_appears_when_whole(self):
        path = self._path("new", "x.txt")
        with atomic.atomic_file(path) as stream:
            stream.write("caf\u00e9")
            self.assertFalse(os.path.exists(path))
        self.assertEqual("caf\u00e9", self._read("new", "x.txt"))
        self.assertEqual(["x.txt"], os.listdir(self._path("new")))
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(0o666 & ~mask, os.stat(path).st_mode & 0o777)

    def test_failing_file_changes_nothing(self):
        path = self._path("x.txt")
        with atomic.atomic_file(path) as stream:
            stream.write("old")
        with self.assertRaises(ZeroDivisionError):
            with atomic.atomic_file(path) as stream:
                stream.write("new")
                _ = 1 / 0
        self.assertEqual("old", self._read("x.txt"))
        self.assertEqual(["x.txt"], os.listdir(self.root))

    def test_binary_file(self):
        with atomic.atomic_file(self._path("x"), "wb") as stream:
            stream.write(b"\x00\xff")
        with open(self._path("x"), "rb") as stream:
            self.assertEqual(b"\x00\xff", stream.read())

    def test_directory_appears_when_whole(self):
        path = self._path("a", "b")
        with atomic.atomic_directory(path) as directory:
            with open(os.path.join(directory, "x"), "w") as stream:
                stream.write("1")
            self.assertFalse(os.path.exists(path))
        self.assertEqual("1", self._read("a", "b", "x"))
        self.assertEqual(["b"], os.listdir(self._path("a")))

    def test_failing_directory_changes_nothing(self):
        with self.assertRaises(ZeroDivisionError):
            with atomic.atomic_directory(self._path("d")) as directory:
                open(os.path.join(directory, "x"), "w").close()
                _ = 1 / 0
        self.assertEmpty(os.listdir(self.root))

    def test_existing_directory_is_replaced_only_on_request(self):
        path = self._path("d")
        os.mkdir(path)
        with atomic.atomic_directory(path) as directory:
            open(os.path.join(directory, "old"), "w").close()
        with self.assertRaisesRegex(UserError, "--overwrite"):
            with atomic.atomic_directory(path):
                self.fail("must not be entered")
        with atomic.atomic_directory(path, overwrite=True) as directory:
            open(os.path.join(directory, "new"), "w").close()
        self.assertEqual(["new"], os.listdir(path))
        self.assertEqual(["d"], os.listdir(self.root))

    def test_places_that_cannot_be_written(self):
        open(self._path("file"), "w").close()
        for function in (atomic.atomic_file, atomic.atomic_directory):
            with self.assertRaisesRegex(UserError, "cannot be made"):
                with function(self._path("file", "x")):
                    pass
            with self.assertRaisesRegex(UserError, "local"):
                with function("gs://bucket/x"):
                    pass
        with self.assertRaisesRegex(UserError, "is a directory"):
            with atomic.atomic_file(self.root):
                pass
        with self.assertRaisesRegex(UserError, "is a file"):
            with atomic.atomic_directory(self._path("file")):
                pass


if __name__ == "__main__":
    tf.test.main()
