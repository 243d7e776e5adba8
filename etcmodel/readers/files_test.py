import concurrent.futures
import gzip
import os
import pathlib
import tempfile
import unittest

from etcmodel.datasets import classification
from etcmodel.datasets import documents
from etcmodel.errors import UserError
from etcmodel.readers import files


class FilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("b1.json", "b2.json", "a.json", "x,y.json", "[1].json"):
            (self.folder / name).write_bytes(name.encode())

    def find(self, paths):
        if isinstance(paths, str):
            paths = ",".join(f"{self.folder}/{x}" for x in paths.split(","))
        found = files.find(paths)
        return [os.path.relpath(path, self.folder) for path in found]

    def test_find(self):
        for paths, expected in {
            "a.json": ["a.json"],
            "b*.json": ["b1.json", "b2.json"],
            "b?.json,a.json": ["b1.json", "b2.json", "a.json"],
            # Each file occurs once, in the order of first occurrence.
            "b2.json,b*.json": ["b2.json", "b1.json"],
            "[1].json": ["[1].json"],
            "[ab].json": ["a.json"],
        }.items():
            self.assertEqual(expected, self.find(paths), paths)
        path = str(self.folder / "x,y.json")
        self.assertEqual([path], files.find(path))
        self.assertEqual([path], files.find([path]))

    def test_commas_in_names(self):
        for name in ("a", "b", "c,d"):
            (self.folder / name).touch()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        for text, expected in (
            ("c,d", ["c,d"]),
            ("a,c,d,b", ["a", "c,d", "b"]),
            ("c,d,a", ["c,d", "a"]),
            ("a, b", ["a", " b"]),
            ("gone,a,[ab]", ["gone", "a", "[ab]"]),
            ("gs://x/c,d", ["gs://x/c", "d"]),
        ):
            self.assertEqual(expected, files.split_paths(text))

    def test_nothing_found(self):
        for paths in ("c.json", "c*.json", "a.json,c.json", ""):
            with self.assertRaisesRegex(UserError, "no such file"):
                files.find(paths)
        with self.assertRaisesRegex(UserError, r"is a directory.*\*.json"):
            files.find(f"{self.folder}/a.json,{self.folder}")

    def test_remote_files(self):
        """Reads file:// addresses, which TensorFlow opens like gs://."""
        address = self.folder.as_uri()
        self.assertEqual(
            [f"{self.folder}/b1.json", f"{self.folder}/b2.json"],
            [x.removeprefix("file://") for x in files.find(f"{address}/b*")],
        )
        text = "text " * 50000
        for content in (text.encode(), gzip.compress(text.encode())):
            (self.folder / "a.json").write_bytes(content)
            path = f"{address}/a.json"
            self.assertEqual(len(content), files.size(path))
            raw, plain = files.open_plain(path)
            with raw, plain:
                self.assertEqual(text[:9].encode(), plain.read(9))
                self.assertEqual(text[9:].encode(), plain.read())
                self.assertEqual(len(content), raw.tell())
        with self.assertRaisesRegex(UserError, "a.jso.*no such file"):
            files.open_plain(f"{address}/a.jso")

    def test_size_and_full_name(self):
        self.assertEqual(6, files.size(str(self.folder / "a.json")))
        self.assertEqual(0, files.size(str(self.folder)))
        self.assertEqual(f"{os.getcwd()}/a.json", files.full_name("a.json"))
        self.assertEqual("gs://b/a.json", files.full_name("gs://b/a.json"))

    def test_read_form(self):
        """Finds local and remote names in any Unicode normalization form."""

        def read(path):
            raw, plain = files.open_plain(path)
            with raw, plain:
                return plain.read()

        (self.folder / "e\u0301").write_bytes(b"decomposed")
        (self.folder / "\u00fc").write_bytes(b"composed")
        for folder in (str(self.folder), self.folder.as_uri()):
            for name, expected in (
                ("\u00e9", b"decomposed"),
                ("e\u0301", b"decomposed"),
                ("u\u0308", b"composed"),
                ("\u00e8", None),
                ("a.json/b", None),
            ):
                found = files.read_form(read, folder, name)
                self.assertEqual(expected, found, (folder, name))
        self.assertIsNone(files.read_form(read, str(self.folder), "a\0b"))

    def test_parts_of_lines(self):
        lines = ['\ufeff{"a": 1}', "", '{"b": 22}', "  ", '{"c": "\u00e9"}']
        content = "\n".join(lines).encode()
        path = str(self.folder / "lines.jsonl")
        for end in (b"", b"\n"):
            pathlib.Path(path).write_bytes(content + end)
            for size in (1, 5, 12, 16, 30, 1000):
                parts = files.line_parts(path, size)
                found = []
                counts = {}
                for part in parts:
                    lines = files.within(part, files.plain_lines, path)
                    found.append(b"".join(lines))
                    counts[part] = files.count_lines(part)
                self.assertEqual(content + end, b"".join(found))
                self.assertEqual(size >= 30, len(parts) == 1)
                for part in found[:-1]:
                    self.assertTrue(part.endswith(b"\n"))
                numbered = files.numbered(parts, counts)
                for part in numbered:
                    before = (content + end)[: part.start].split(b"\n")[:-1]
                    self.assertEqual(len(before), part.lines)
                    self.assertEqual(
                        sum(map(bool, map(bytes.strip, before))), part.records
                    )
                # Parts with only blank lines are omitted.
                self.assertLessEqual(len(numbered), 3)

    def test_parts_have_the_format_of_their_file(self):
        """Reads a part as JSON lines even if its first record is bad."""
        path = str(self.folder / "lines.jsonl")
        lines = ['{"text": "a"}', "null", "[1]", '"x"', '{"text": "b"}']
        pathlib.Path(path).write_text("\n".join(lines))
        for module in (documents, classification):
            whole, found = [], []
            for parts in ([files.Part(path)], files.line_parts(path, 1)):
                counts = {x: files.count_lines(x) for x in parts}
                for part in files.numbered(parts, counts):
                    read = module.FORMAT.read_part([path], part, "train")
                    (whole if len(parts) == 1 else found).extend(
                        (source.index, str(error))
                        for source, _, error, _ in read
                    )
            self.assertEqual(5, len(whole))
            self.assertEqual(whole, found)

    def test_parts_are_read_in_turn(self):
        """Alternates between parts; another thread closes their readers."""
        path = str(self.folder / "lines.jsonl")
        pathlib.Path(path).write_text("a\nb\nc\nd\n")
        first, second = files.Part(path, 0, 4), files.Part(path, 4, 8)
        closed = []

        def read(name):
            try:
                for line in files.plain_lines(path):
                    yield line, files.part_of(path)
            finally:
                closed.append((name, files.part_of(path)))

        readers = [files.within(x, read, x) for x in (first, second)]
        self.assertEqual(
            [(b"a\n", first), (b"c\n", second)], [next(x) for x in readers]
        )
        self.assertEqual(files.Part(path), files.part_of(path))
        with concurrent.futures.ThreadPoolExecutor() as executor:
            executor.submit(readers[0].close).result()
        self.assertEqual([(b"d\n", second)], [*readers[1]])
        self.assertEqual([(first, first), (second, second)], closed)
        self.assertEqual(files.Part(path), files.part_of(path))

    def test_files_of_one_part(self):
        for name, content in (
            ("array.json", b'[{"a": 1},\n{"b": 2}]'),
            ("pretty.json", b'{\n"a": 1}\n'),
            ("text.txt", b"a\nb\n"),
            ("lines.gz", gzip.compress(b'{"a": 1}\n{"b": 2}\n')),
        ):
            path = self.folder / name
            path.write_bytes(content)
            self.assertEqual(
                [files.Part(str(path))], files.line_parts(str(path), 1)
            )

    def test_cannot_be_opened(self):
        with self.assertRaisesRegex(
            UserError, "is a directory, expected a file"
        ):
            files.open_plain(str(self.folder))
        with self.assertRaisesRegex(UserError, "no such file"):
            files.open_plain(str(self.folder / "c.json"))


if __name__ == "__main__":
    unittest.main()
