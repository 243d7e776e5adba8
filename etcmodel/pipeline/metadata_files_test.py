import json
import os
import re
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.pipeline import metadata_files

_GOOD = {"task": "nq", "count": 3, "model": {"encoder": {"size": 2}}}
_KEYS = {"task": str, "count": int, "model.encoder": dict}


class MetadataFilesTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, content, name="x.json"):
        path = os.path.join(tempfile.mkdtemp(dir=self.get_temp_dir()), name)
        with open(path, "wb") as stream:
            stream.write(content)
        return path

    @parameterized.parameters("x.json", "x.yaml", "x.yml")
    def test_reads(self, name):
        # The content is JSON, which is also valid YAML.
        path = self._write(json.dumps(_GOOD).encode(), name)
        self.assertEqual(_GOOD, metadata_files.read(path, _KEYS))
        self.assertEqual(_GOOD, metadata_files.read(path))

    def test_reads_from_other_file_systems(self):
        path = self._write(json.dumps(_GOOD).encode())
        self.assertTrue(metadata_files.exists(f"file://{path}"))
        self.assertFalse(metadata_files.exists(f"file://{path}x"))
        self.assertEqual(_GOOD, metadata_files.read(f"file://{path}"))
        with self.assertRaisesRegex(UserError, r"file://.*x: it cannot be re"):
            metadata_files.read(f"file://{path}x")

    @parameterized.parameters(
        ("x.json", b"", "the file is empty"),
        ("x.yaml", b" \n", "the file is empty"),
        ("x.json", b'{"task": ', r"it is not JSON \(.*line 1 column"),
        ("x.json", b"\xff\xfe{", "not text: byte 0 is not UTF-8"),
        ("x.yaml", b"a: 1\nb: [", r"it is not YAML \(.*line 2 column"),
        ("x.yaml", b"a: \x00", r"it is not YAML \(invalid characters"),
        ("x.json", b"[" * 100_000, r"it is not JSON \(it is nested too deep"),
        ("x.yaml", b"[" * 100_000, r"it is not YAML \(it is nested too deep"),
        ("x.yaml", b"a: 2020-13-45", r"it is not YAML \(month must be"),
        ("x.yaml", b"a: !!python/name:os.system", r"it is not YAML \(could"),
        ("x.json", b"[1, 2]", "holds a list, not an object"),
        ("x.yaml", b"just words", "holds a string, not an object"),
        ("x.json", b"null", "holds a null, not an object"),
        ("x.json", b'{"count": 3}', "'task' is missing"),
        ("x.json", b'{"task": "nq", "count": "3"}', "'3', not an integer"),
        ("x.json", b'{"task": "nq", "count": true}', "True, not an integer"),
        (
            "x.yaml",
            b"{task: nq, count: 3, model: 4}",
            "'model.encoder' is missing",
        ),
    )
    def test_damaged(self, name, content, problem):
        path = self._write(content, name)
        with self.assertRaisesRegex(
            UserError,
            f"^{re.escape(path)}: .*{problem}.*; expected a (JSON|YAML) object "
            r"with task, count, model\.encoder\. Make it again\.$",
        ):
            metadata_files.read(path, _KEYS, "Make it again.")

    def test_null_may_be_allowed(self):
        path = self._write(b'{"a": null, "b": 3}')
        content = metadata_files.read(path, {"a": dict | None})
        self.assertEqual({"a": None, "b": 3}, content)
        with self.assertRaisesRegex(
            UserError, "'b' is 3, not an object or null"
        ):
            metadata_files.read(path, {"b": dict | None})

    def test_the_name_of_the_directory_does_not_count(self):
        root = tempfile.mkdtemp(suffix=".json_2", dir=self.get_temp_dir())
        path = os.path.join(root, "x.yaml")
        with open(path, "w") as stream:
            stream.write("a: 3\n")
        self.assertEqual({"a": 3}, metadata_files.read(path))

    @parameterized.parameters(
        "../x", "/x", "a/x", "..", ".", "", "a\\x", "a\0", None, 3, (["x"],)
    )
    def test_path_for_the_name_of_a_file(self, name):
        path = self._write(json.dumps({"a": {"file": name}}).encode())
        keys = {"a.file": metadata_files.FileName}
        with self.assertRaisesRegex(
            UserError, "'a.file' is .*, not the name of a file in its directory"
        ):
            metadata_files.read(path, keys)

    def test_name_of_a_file(self):
        for name in ("x.txt", "..x", "a b,c", ".x"):
            path = self._write(json.dumps({"file": name}).encode())
            keys = {"file": metadata_files.FileName}
            self.assertEqual({"file": name}, metadata_files.read(path, keys))

    @parameterized.parameters("x.json", "x.yaml")
    def test_any_changed_character_is_noticed(self, name):
        """A changed character is an error if it changes the content."""
        content = {
            "a": 0.1,
            "b": [12, "caf\u00e9"],
            "c": {"d": True, "e": None},
        }
        path = self._write(b"", name)
        metadata_files.write(path, content)
        with open(path, "rb") as stream:
            written = stream.read()
        self.assertEqual(content, metadata_files.read(path))
        noticed = 0
        for i in range(len(written)):
            for other in (written[i] ^ 1, ord("7"), ord(" ")):
                damaged = written[:i] + bytes([other]) + written[i + 1 :]
                with open(path, "wb") as stream:
                    stream.write(damaged)
                try:
                    found = metadata_files.read(path)
                except UserError:
                    noticed += 1
                    continue
                # If a character of the checksum's key changes, the key is
                # unknown.
                self.assertEqual(
                    content, {x: y for x, y in found.items() if x in content}
                )
        self.assertGreater(noticed, len(written))

    @parameterized.parameters(
        ("x.json", '"a": 1', '"a": 2', 'delete its key "checksum"'),
        ("x.yaml", "a: 1", "a: 2", "delete its first line"),
    )
    def test_edited(self, name, before, after, advice):
        path = self._write(b"", name)
        metadata_files.write(path, {"a": 1})
        with open(path) as stream:
            lines = stream.read().replace(before, after).splitlines(True)
        with open(path, "w") as stream:
            stream.writelines(lines)
        with self.assertRaisesRegex(
            UserError, f"^{path}: checksum mismatch.*{advice}"
        ):
            metadata_files.read(path)
        with open(path, "w") as stream:
            stream.writelines(x for x in lines if "hecksum" not in x)
        if name == "x.json":
            with open(path, "w") as stream:
                stream.write('{"a": 2}')
        self.assertEqual({"a": 2}, metadata_files.read(path))

    def test_missing(self):
        with self.assertRaisesRegex(
            UserError, r"^/no/such\.json: it cannot be read \(No such file"
        ):
            metadata_files.read("/no/such.json")


if __name__ == "__main__":
    tf.test.main()
