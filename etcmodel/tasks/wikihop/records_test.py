import json
import os
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.errors import BadRecords
from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.errors import UserError
from etcmodel.tasks.wikihop import records
from etcmodel.testing import real_data_path


def good_record(**changes):
    """A small record as in the official files; None removes a field."""
    record = {
        "id": "WH_1",
        "query": "country_of_citizenship jan novak",
        "supports": ["Jan Novak was born in Brno.", "Brno is in Moravia."],
        "candidates": ["austria", "Czech Republic ", "poland"],
        "answer": " czech republic",
    }
    record.update(changes)
    return {key: value for key, value in record.items() if value is not None}


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, content) -> str:
        path = os.path.join(
            tempfile.mkdtemp(dir=self.get_temp_dir()), "data.json"
        )
        if not isinstance(content, bytes):
            content = json.dumps(content).encode("utf-8")
        with open(path, "wb") as stream:
            stream.write(content)
        return path

    def _read(self, content, *args):
        return list(records.read_records(self._write(content), *args))

    def test_reads_a_record(self):
        (record,) = self._read([good_record()])
        self.assertEqual("WH_1", record.id)
        self.assertEqual("country_of_citizenship jan novak", record.query)
        self.assertLen(record.supports, 2)
        # As they stand in the file.
        self.assertEqual(
            ("austria", "Czech Republic ", "poland"), record.candidates
        )
        # Compared without case and surrounding space.
        self.assertEqual(1, record.answer_index)

    def test_real_records(self):
        path = real_data_path("wikihop/train_22.json")
        read = list(records.read_records(path))
        self.assertLen(read, 22)
        with open(path, encoding="utf-8") as stream:
            expected = json.load(stream)
        for record, value in zip(read, expected, strict=True):
            self.assertEqual(value["id"], record.id)
            self.assertEqual(value["query"], record.query)
            self.assertEqual(tuple(value["supports"]), record.supports)
            self.assertEqual(
                value["candidates"].index(value["answer"]), record.answer_index
            )

    @parameterized.named_parameters(
        ("not_an_object", [1, 2], "JSON object|expected a WikiHop record"),
        ("hotpotqa", {"_id": "5a7a", "question": "?"}, "_id, question"),
        ("no_id", good_record(id=None), "'id'.*missing"),
        ("number_id", good_record(id=4), "'id'.*got 4"),
        ("no_query", good_record(query=None), "'query'.*missing"),
        ("empty_query", good_record(query=" "), "'query'.*empty"),
        ("no_supports", good_record(supports=None), "'supports'.*missing"),
        ("text_supports", good_record(supports="text"), "list of strings"),
        ("list_supports", good_record(supports=[["a"]]), r"supports\[0\]"),
        ("zero_supports", good_record(supports=[]), "none of its 0"),
        ("empty_supports", good_record(supports=["", " "]), "none of its 2"),
        ("no_candidates", good_record(candidates=None), "missing"),
        ("zero_candidates", good_record(candidates=[]), "at least one"),
        (
            "empty_candidate",
            good_record(candidates=["czech republic", " "]),
            r"candidates\[1\]",
        ),
        ("no_answer", good_record(answer=None), "--split=predict"),
        (
            "other_answer",
            good_record(answer="france"),
            "got 'france', expected one of its 3 candidates",
        ),
    )
    def test_bad_record(self, value, message):
        path = self._write([good_record(id="first"), value])
        reader = records.read_records(path)
        self.assertEqual("first", next(reader).id)
        with self.assertRaisesRegex(RecordError, message) as caught:
            next(reader)
        self.assertIn(f"{path}, record 1", str(caught.exception))
        self.assertIn("--skip_bad_records", str(caught.exception))

        bad_records = BadRecords(skip=True)
        content = [good_record(id="first"), value, good_record(id="last")]
        read = self._read(content, "train", bad_records)
        self.assertEqual(["first", "last"], [record.id for record in read])
        self.assertEqual(1, bad_records.total)

    def test_invalid_utf8_is_skipped_alone(self):
        content = (
            json.dumps([good_record(id=str(i)) for i in range(3)])
            .encode()
            .replace(b"Moravia", b"M\xe4hren", 1)
        )
        with self.assertRaisesRegex(RecordError, "'supports'.*not UTF-8"):
            self._read(content)
        bad_records = BadRecords(skip=True)
        read = self._read(content, "train", bad_records)
        self.assertEqual(["1", "2"], [record.id for record in read])
        self.assertEqual({"invalid UTF-8": 1}, dict(bad_records.counts))

    def test_duplicate_ids(self):
        with self.assertRaisesRegex(RecordError, "record 1.*same"):
            self._read([good_record(), good_record()])

    def test_predict_needs_no_answer(self):
        content = [
            good_record(id="a", answer=None),
            good_record(id="b", answer="france"),
            good_record(id="c"),
        ]
        read = self._read(content, "predict")
        self.assertEqual([None, None, 1], [r.answer_index for r in read])

    def test_large_records(self):
        text = "word " * 80_000
        content = [
            good_record(
                supports=[text],
                candidates=[str(i) for i in range(5000)],
                answer="4999",
            )
        ]
        (record,) = self._read(content)
        self.assertLen(record.supports[0], 400_000)
        self.assertEqual(4999, record.answer_index)

    def test_truncated_file(self):
        content = json.dumps([good_record(id="a"), good_record(id="b")])
        path = self._write(content[:-40].encode())
        for skip in (False, True):  # What is lost cannot be skipped.
            with self.assertRaisesRegex(UserError, "after 1 whole records"):
                list(records.read_records(path, bad_records=BadRecords(skip)))

    def test_unknown_split(self):
        with self.assertRaisesRegex(ValueError, "split"):
            self._read([], "dev")


if __name__ == "__main__":
    tf.test.main()
