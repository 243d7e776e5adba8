import os
import resource
import subprocess
import sys
import tempfile

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.pipeline import atomic
from etcmodel.pipeline import own_files
from etcmodel.pipeline import swaps


class AtomicTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = tempfile.mkdtemp(dir=self.get_temp_dir())

    def _path(self, *names):
        return os.path.join(self.root, *names)

    def _write(self, *names):
        open(self._path(*names), "w").close()

    def test_file_appears_when_complete(self):
        path = self._path("new", "x.txt")
        for mode, content, expected in (
            ("w", "caf\u00e9", b"caf\xc3\xa9"),
            ("wb", b"\x00\xff", b"\x00\xff"),
        ):
            with self.assertRaises(ZeroDivisionError):
                with atomic.atomic_file(path, mode) as stream:
                    stream.write(content[:1])
                    _ = 1 / 0
            self.assertEmpty(os.listdir(os.path.dirname(path)))
            with atomic.atomic_file(path, mode) as stream:
                stream.write(content)
                self.assertFalse(os.path.exists(path))
            self.assertEqual(["x.txt"], os.listdir(os.path.dirname(path)))
            with open(path, "rb") as stream:
                self.assertEqual(expected, stream.read())
            mask = os.umask(0)
            os.umask(mask)
            self.assertEqual(0o666 & ~mask, os.stat(path).st_mode & 0o777)
            os.remove(path)

    def test_failing_file_leaves_the_old_one(self):
        self._write("x.txt")
        with self.assertRaises(ZeroDivisionError):
            with atomic.atomic_file(self._path("x.txt")) as stream:
                stream.write("new")
                _ = 1 / 0
        self.assertEqual(["x.txt"], os.listdir(self.root))
        self.assertEqual(0, os.path.getsize(self._path("x.txt")))

    def test_directory_appears_when_complete(self):
        path = self._path("a", "b")
        with self.assertRaises(ZeroDivisionError):
            with atomic.atomic_directory(path) as directory:
                self._write(directory, "x")
                _ = 1 / 0
        self.assertEmpty(os.listdir(self._path("a")))
        with atomic.atomic_directory(path) as directory:
            self._write(directory, "x")
            self.assertFalse(os.path.exists(path))
        self.assertEqual(["b"], os.listdir(self._path("a")))
        self.assertCountEqual(["x", own_files.FILE], os.listdir(path))

    def test_existing_directory_is_replaced_only_on_request(self):
        path = self._path("d")
        os.mkdir(path)
        with atomic.atomic_directory(path) as directory:
            self._write(directory, "old")
        with self.assertRaisesRegex(UserError, "`overwrite`"):
            with atomic.atomic_directory(path):
                self.fail("must not be entered")
        with atomic.atomic_directory(path, overwrite=True) as directory:
            self._write(directory, "new")
        self.assertCountEqual(["new", own_files.FILE], os.listdir(path))
        self.assertEqual(["d"], os.listdir(self.root))

    def test_foreign_directory_is_never_replaced(self):
        path = self._path("d")
        os.mkdir(path)
        self._write("d", "x")
        for overwrite, message in (
            (True, "was not written by this"),
            (False, "not empty. Choose another directory.$"),
        ):
            with self.assertRaisesRegex(UserError, message):
                with atomic.atomic_directory(path, overwrite):
                    self.fail("must not be entered")
        self.assertEqual(["x"], os.listdir(path))

    def test_links(self):
        """Keeps links and replaces their targets; rejects broken links."""
        os.mkdir(self._path("there"))
        os.symlink(self._path("there", "d"), self._path("link"))
        os.symlink(self._path("loop"), self._path("loop"))
        for path in ("link", "loop", "loop/x", "loop/"):
            for check in (atomic.check_file, atomic.check_directory):
                with self.assertRaisesRegex(UserError, "link"):
                    check(self._path(path), overwrite=True)
        for content in ("old", "new"):
            with atomic.atomic_directory(self._path("there", "d"), True) as d:
                self._write(d, content)
            with atomic.atomic_directory(self._path("link"), True) as d:
                self._write(d, content + "er")
            self.assertTrue(os.path.islink(self._path("link")))
            self.assertIn(content + "er", os.listdir(self._path("there", "d")))
        os.symlink(self._path("there", "x"), self._path("x"))
        self._write("there", "x")
        with atomic.atomic_file(self._path("x")) as stream:
            stream.write("new")
        self.assertTrue(os.path.islink(self._path("x")))
        self.assertEqual(3, os.path.getsize(self._path("there", "x")))
        self.assertCountEqual(["d", "x"], os.listdir(self._path("there")))
        for name in ("link", "loop", "x"):
            os.remove(self._path(name))

    def test_permissions_are_those_of_new_files(self):
        """Permissions follow the umask, and the umask is never changed."""
        script = (
            "import os, sys\n"
            "from etcmodel.pipeline import atomic\n"
            "os.umask(0o027)\n"
            "umask, os.umask = os.umask, None\n"
            "with atomic.atomic_file(sys.argv[1] + 'f'): pass\n"
            "with atomic.atomic_directory(sys.argv[1] + 'd'): pass\n"
            "assert umask(0) == 0o027\n"
        )
        subprocess.run(
            [sys.executable, "-c", script, self.root + "/"], check=True
        )
        for name, mode in (("f", 0o640), ("d", 0o750)):
            self.assertEqual(mode, os.stat(self._path(name)).st_mode & 0o777)

    def test_full_disk_is_named(self):
        """A limit on the file size simulates a full disk."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        for name in ("f", "d"):
            path = self._path(name)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
            try:
                with self.assertRaisesRegex(OSError, f"large: '{path}'"):
                    if name == "f":
                        with atomic.atomic_file(path) as stream:
                            stream.write("x" * 101)
                    else:
                        with atomic.atomic_directory(path) as folder:
                            file = os.path.join(folder, "x")
                            with open(file, "w") as stream:
                                stream.write("x" * 101)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            self.assertEmpty(os.listdir(self.root))

    def test_unwritable_paths(self):
        self._write("file")
        file, folder = atomic.atomic_file, atomic.atomic_directory
        for function, path, message in (
            (file, self._path("file", "x"), "cannot be created"),
            (folder, self._path("file", "x"), "cannot be created"),
            (file, "gs://bucket/x", "local"),
            (folder, "gs://bucket/x", "local"),
            (file, self.root, "is a directory"),
            (file, "/dev/null", "is not a regular file"),
            (folder, "/proc", "is the root of a file system"),
            (folder, self._path("file"), "is a file"),
        ):
            with self.assertRaisesRegex(UserError, message), function(path):
                pass

    def test_leftovers_of_killed_processes(self):
        """Removes leftovers, but keeps files that are being written."""
        path = os.path.join(self.root, "out")
        script = (
            "import os, sys\n"
            "from etcmodel.pipeline import atomic\n"
            "with atomic.atomic_directory(sys.argv[1]) as directory:\n"
            "    open(os.path.join(directory, 'x'), 'w').close()\n"
            "    os._exit(1)\n"
        )
        subprocess.run([sys.executable, "-c", script, path], check=False)
        (left,) = os.listdir(self.root)
        self.assertEndsWith(left, ".partial")
        with atomic.atomic_directory(path):
            (own,) = os.listdir(self.root)
            self.assertNotEqual(left, own)
            with atomic.atomic_file(path + "2"):
                self.assertIn(own, os.listdir(self.root))
            # Another process writes to the same path at the same time.
            swaps.recover(path)
            self.assertIn(own, os.listdir(self.root))
        self.assertCountEqual(["out", "out2"], os.listdir(self.root))


class OutputDirectoryTest(tf.test.TestCase):
    """Tests with ram://, which TensorFlow handles like gs://."""

    def test_appears_when_complete(self):
        gfile, root = tf.io.gfile, f"ram://{self.id()}"
        path = f"{root}/a/b"

        def write(text, **kwargs):
            with atomic.output_directory(path, **kwargs) as directory:
                with gfile.GFile(f"{directory}/{text}", "w") as stream:
                    stream.write(text)
                if text == "bad":
                    raise KeyboardInterrupt

        write("one")
        with self.assertRaisesRegex(UserError, f"{path} exists.*`overwrite`"):
            write("two")
        with self.assertRaisesRegex(UserError, "Give a directory in it"):
            atomic.check_directory("gs://bucket/", True, in_bucket=True)
        with self.assertRaises(KeyboardInterrupt):
            write("bad", overwrite=True)
        self.assertCountEqual(["one", own_files.FILE], gfile.listdir(path))
        write("two", overwrite=True)
        self.assertCountEqual(["two", own_files.FILE], gfile.listdir(path))
        with gfile.GFile(f"{path}/three", "w") as stream:
            stream.write("three")
        with self.assertRaisesRegex(UserError, f"{path} holds three"):
            write("two", overwrite=True)
        self.assertEqual(
            ["b"], [x.rstrip("/") for x in gfile.listdir(f"{root}/a")]
        )

    def test_on_a_disk(self):
        path = f"{self.get_temp_dir()}/a"
        with atomic.output_directory(path) as directory:
            self.assertNotEqual(path, directory)
        self.assertTrue(os.path.isdir(path))


if __name__ == "__main__":
    tf.test.main()
