import gzip
import os

import tensorflow as tf

from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.readers import text_files


class TextFilesTest(tf.test.TestCase):
    def _write(self, name, content):
        path = os.path.join(self.get_temp_dir(), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(content)
        return path

    def test_names_and_contents_tell_plain_texts(self):
        packed = gzip.compress(b"Jan paints.")
        for name, content, is_text in (
            ("a.txt", b"# Jan\n\nJan paints, and sings.", True),
            ("a.MD", b"[Jan](jan.md) paints.", True),
            ("a.md.gz", packed, True),
            ("a.txt", b"", True),
            ("a.json", b"Jan paints.", False),
            ("a.txt", b'{"text": "Jan paints."}', False),
            ("a.txt", b' [{"text": "Jan paints."}]', False),
            # The header row of a table has the field of the document.
            ("a.txt", b'"id"\t"text"\n1\tJan paints.', False),
            ("a.txt", b"id\tcontent\n1\tJan paints.", True),
        ):
            with self.subTest(content):
                path = self._write(name, content)
                self.assertEqual(
                    is_text, text_files.are_texts([path], ["text"])
                )
        paths = [self._write("a.txt", b"a"), self._write("b.csv", b"text\na")]
        with self.assertRaisesRegex(
            UserError, r"a\.txt is a plain text, but .*b\.csv is not"
        ):
            text_files.are_texts(paths)

    def test_a_file_is_a_record(self):
        # A byte order mark is no text.
        paths = [
            self._write("a.txt", b"\xef\xbb\xbf J\xc3\xa1n.\r\n\r\nEve. "),
            self._write("sub/a.txt", b"b"),
            self._write("c.txt", b"d"),
        ]
        found = [*text_files.make_format(paths, "Who?").read(paths)]
        self.assertEqual(
            [
                (paths[0], " Ján.\r\n\r\nEve. ", "Who?"),
                (paths[1], "b", "Who?"),
                ("c.txt", "d", "Who?"),
            ],
            [(x.id, x.text, x.query) for x in found],
        )

    def test_texts_that_cannot_be_used(self):
        for content, message in (
            (b" \n", "the file has no text"),
            (b"a\0b\0", "NUL characters"),
            (b"caf\xe9", "bytes that are not UTF-8"),
        ):
            paths = [self._write("a.txt", content), self._write("b.txt", b"b")]
            made = text_files.make_format(paths)
            with self.assertRaisesRegex(RecordError, f"a.txt.*{message}"):
                list(made.read(paths))
            bad_records = BadRecords(skip=True)
            found = [*made.read(paths, "predict", bad_records)]
            self.assertEqual(["b.txt"], [x.id for x in found])
            self.assertEqual(1, bad_records.total)


if __name__ == "__main__":
    tf.test.main()
