"""Tests of fields and ids of rows in users' own files and collections."""

import json
import os

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from testing.row_formats import make_format as _format


class RowFormatTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("query", "id", "evidence")
    def test_field_that_no_record_has(self, name):
        """Without an error, a misspelled field would be ignored."""
        path = os.path.join(self.get_temp_dir(), "a.jsonl")
        rows = [{"text": "a"}, {"text": "b", "ask": "c"}]
        with open(path, "w") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
        with self.assertRaisesRegex(
            UserError, "a.jsonl: no record has the field 'aks'.*have text, ask"
        ):
            list(_format(**{name: "aks"}).read(path))
        # Some records may lack it.
        first, second = _format(**{name: "ask"}).read(path)
        found = {"query": second.query, "id": second.id}
        self.assertIn(found.get(name), (("c",), "c", None))

    @parameterized.parameters(
        ("train", ["query", "id", "evidence"]),
        ("dev", ["query", "id", "evidence"]),
        ("predict", ["query"]),
    )
    def test_field_that_no_row_has(self, split, needed):
        """Predictions keep the order of rows, and need no evidence."""
        rows = [{"text": "a"}, {"text": "b", "ask": "c"}]
        for name in ("query", "id", "evidence"):
            read = _format(**{name: "aks"}).read_rows(rows, split, name="data")
            self.assertEqual((("a",),), next(read).paragraphs)
            if name not in needed:
                self.assertLen(list(read), 1)
                continue
            with self.assertRaisesRegex(
                UserError, "^data: no record has the field 'aks'.*have text, as"
            ):
                list(read)
        self.assertLen(list(_format(query="ask").read_rows(rows, split)), 2)
        self.assertEmpty(list(_format(query="ask").read_rows([], split)))

    def test_ids(self):
        """No two records get the same id, in one file or several."""
        folder = self.get_temp_dir()
        paths = [os.path.join(folder, x, "a.jsonl") for x in ("b", "c")]
        for path in paths:
            os.makedirs(os.path.dirname(path))
            with open(path, "w") as stream:
                for row in ({"text": "a"}, {"text": "a", "id": 0}):
                    stream.write(json.dumps(row) + "\n")
        self.assertEqual("0", next(_format().read(paths[0])).id)
        with self.assertRaisesRegex(RecordError, "1 .*'0'.* has the same one"):
            list(_format().read(paths[0]))
        bad_records = BadRecords(skip=True)
        read = _format().read(paths, None, bad_records)
        self.assertEqual(
            [f"{paths[0]}:0", "0", f"{paths[1]}:0"], [x.id for x in read]
        )
        other = os.path.join(folder, "other.jsonl")
        os.rename(paths[1], other)
        read = _format().read([paths[0], other], None, bad_records)
        self.assertEqual(
            ["a.jsonl:0", "0", "other.jsonl:0"], [x.id for x in read]
        )


if __name__ == "__main__":
    tf.test.main()
