import gzip
import json
import os
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.errors import BadRecords
from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.errors import UserError
from etcmodel.tasks.hotpotqa import records
from etcmodel.tasks.hotpotqa.records import HotpotQARecord
from etcmodel.tasks.hotpotqa.records import Paragraph
from etcmodel.testing import real_data_path


def good_record(**changes):
    """A small record as in the official files; None removes a field."""
    record = {
        "_id": "5a7a",
        "question": "In which country was Jan born?",
        "context": [
            ["Jan", ["Jan was born in Brno.", " He paints."]],
            ["Brno", ["Brno is a city.", " It is in Moravia.", ""]],
        ],
        "answer": "Czech Republic",
        "supporting_facts": [["Jan", 0], ["Brno", 1]],
        "type": "bridge",
        "level": "hard",
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

    @parameterized.named_parameters(
        ("train", "train"), ("dev", "dev"), ("predict", "predict")
    )
    def test_reads_a_record(self, split):
        (record,) = self._read([good_record()], split)
        self.assertEqual(
            HotpotQARecord(
                id="5a7a",
                question="In which country was Jan born?",
                context=(
                    Paragraph("Jan", ("Jan was born in Brno.", " He paints.")),
                    Paragraph(
                        "Brno", ("Brno is a city.", " It is in Moravia.", "")
                    ),
                ),
                answer="Czech Republic",
                supporting_facts=(("Jan", 0), ("Brno", 1)),
                type="bridge",
                level="hard",
                index=0,
            ),
            record,
        )
        self.assertEqual(((0, 0), (1, 1)), record.fact_positions)
        self.assertEqual(0, record.num_missing_facts)

    def test_reads_gzip(self):
        content = json.dumps([good_record(_id="a"), good_record(_id="b")])
        read = self._read(gzip.compress(content.encode()))
        self.assertEqual(["a", "b"], [record.id for record in read])
        self.assertEqual([0, 1], [record.index for record in read])

    def test_type_and_level_are_optional(self):
        (record,) = self._read([good_record(type=None, level=None)])
        self.assertEqual(("", ""), (record.type, record.level))

    @parameterized.named_parameters(
        ("train", "hotpotqa/train_200.json", 200),
        ("dev", "hotpotqa/dev_95.json", 95),
        ("2wiki", "hotpotqa/2wiki_train_500.json", 500),
    )
    def test_real_records(self, name, count):
        path = real_data_path(name)
        read = list(records.read_records(path, "dev"))
        self.assertLen(read, count)
        with open(path, encoding="utf-8") as stream:
            expected = json.load(stream)
        for record, value in zip(read, expected, strict=True):
            self.assertEqual(value["_id"], record.id)
            self.assertEqual(value["question"], record.question)
            self.assertEqual(value["answer"], record.answer)
            self.assertEqual(value["type"], record.type)
            self.assertEqual(value["level"], record.level)
            self.assertEqual(
                value["context"],
                [[p.title, list(p.sentences)] for p in record.context],
            )
            self.assertEqual(
                value["supporting_facts"],
                list(map(list, record.supporting_facts)),
            )
            named = [
                [record.context[paragraph].title, sentence]
                for paragraph, sentence in record.fact_positions
            ]
            self.assertNotEmpty(named)
            for fact in named:
                self.assertIn(fact, value["supporting_facts"])
            # No fact of these files comes twice.
            self.assertEqual(
                len(value["supporting_facts"]),
                len(named) + record.num_missing_facts,
            )

    def test_facts_out_of_range_in_real_records(self):
        # HotpotQA has them, too, but not in these samples.
        for name, missing in (
            ("hotpotqa/train_200.json", 0),
            ("hotpotqa/dev_95.json", 0),
            ("hotpotqa/2wiki_train_500.json", 6),
        ):
            read = records.read_records(real_data_path(name))
            self.assertEqual(missing, sum(r.num_missing_facts for r in read))

    @parameterized.named_parameters(
        ("absent_title", [["jan", 0], ["Brno", 2]], ((1, 2),), 1),
        ("out_of_range", [["Brno", 3], ["Jan", 9], ["Jan", 1]], ((0, 1),), 2),
        (
            "order",
            [["Brno", 2], ["Jan", 1], ["Brno", 0]],
            ((1, 2), (0, 1), (1, 0)),
            0,
        ),
        ("twice", [["Brno", 0], ["Jan", 1], ["Brno", 0]], ((1, 0), (0, 1)), 0),
        ("all_missing", [["x", 0], ["y", 0]], (), 2),
        # The first "Jan" has two sentences, the other one three.
        (
            "same_title",
            [["Jan", 1], ["Jan", 2], ["Jan", 3]],
            ((0, 1), (2, 2)),
            1,
        ),
        ("no_sentences", [["Jan", 0], ["E", 0]], ((0, 0), (4, 0)), 0),
    )
    def test_fact_positions(self, facts, positions, missing):
        value = good_record(supporting_facts=facts)
        value["context"] += [["Jan", ["a", "b", "c"]], ["E", []], ["E", ["d"]]]
        (record,) = self._read([value])
        self.assertEqual(positions, record.fact_positions)
        self.assertEqual(missing, record.num_missing_facts)

    def test_no_facts_told(self):
        record = HotpotQARecord("a", "q", (Paragraph("t", ("s",)),))
        self.assertEqual((), record.fact_positions)
        self.assertEqual(0, record.num_missing_facts)
        # Built by hand, such a fact must not count from the end.
        record = HotpotQARecord(
            "a", "q", record.context, supporting_facts=(("t", -1),)
        )
        self.assertEqual((), record.fact_positions)
        self.assertEqual(1, record.num_missing_facts)

    @parameterized.named_parameters(
        ("wikihop", {"id": "WH_1", "query": "?"}, "_id", "has: id, query"),
        ("no_id", good_record(_id=None), "_id", "missing"),
        ("number_id", good_record(_id=4), "_id", "got 4, expected a string"),
        ("empty_id", good_record(_id=" "), "_id", "empty"),
        ("duplicate_id", good_record(_id="first"), "_id", "the same"),
        ("no_question", good_record(question=None), "question", "missing"),
        ("list_question", good_record(question=["a"]), "question", "a string"),
        ("empty_question", good_record(question=" "), "question", "empty"),
        ("no_context", good_record(context=None), "context", "missing"),
        (
            "text_context",
            good_record(context="text"),
            "context",
            r"got 'text', expected a list of \[title, \[sentence, ...\]\]",
        ),
        ("empty_context", good_record(context=[]), "context", "is empty"),
        (
            "object_in_context",
            good_record(context=[["a", ["b"]], {"title": "a"}]),
            "context[1]",
            r"expected \[title, \[sentence",
        ),
        (
            "title_alone",
            good_record(context=[["a"]]),
            "context[0]",
            "a list of 1, expected",
        ),
        (
            "three_in_a_paragraph",
            good_record(context=[["a", ["b"]], ["a", "b", "c"]]),
            "context[1]",
            "a list of 3, expected",
        ),
        (
            "number_title",
            good_record(context=[[1984, ["b"]]]),
            "context[0][0]",
            "got 1984, expected a string",
        ),
        (
            "text_sentences",
            good_record(context=[["a", ["b"]], ["c", "d"]]),
            "context[1][1]",
            "got 'd', expected a list of strings",
        ),
        (
            "number_sentence",
            good_record(context=[["a", ["b"]], ["c", ["d", "e", 7]]]),
            "context[1][1][2]",
            "got 7, expected a string",
        ),
        (
            "no_text",
            good_record(context=[["a", ["", " "]], ["b", []]]),
            "context",
            "no sentence of its 2 paragraphs has any text",
        ),
        (
            "text_facts",
            good_record(supporting_facts="Jan"),
            "supporting_facts",
            r"expected a list of \[title, number of the sentence\]",
        ),
        (
            "text_fact",
            good_record(supporting_facts=[["Jan", 0], "Jan"]),
            "supporting_facts[1]",
            "got 'Jan', expected",
        ),
        (
            "short_fact",
            good_record(supporting_facts=[["Jan"]]),
            "supporting_facts[0]",
            "a list of 1, expected",
        ),
        (
            "long_fact",
            good_record(supporting_facts=[["Jan", 0, 1]]),
            "supporting_facts[0]",
            "a list of 3, expected",
        ),
        (
            "number_fact_title",
            good_record(supporting_facts=[[1984, 0]]),
            "supporting_facts[0][0]",
            "expected a string",
        ),
        (
            "text_fact_number",
            good_record(supporting_facts=[["Jan", 0], ["Jan", "1"]]),
            "supporting_facts[1][1]",
            "got '1', expected a whole number",
        ),
        (
            "bool_fact_number",
            good_record(supporting_facts=[["Jan", True]]),
            "supporting_facts[0][1]",
            "got True, expected a whole number",
        ),
        (
            "float_fact_number",
            good_record(supporting_facts=[["Jan", 1.0]]),
            "supporting_facts[0][1]",
            "got 1.0, expected a whole number",
        ),
        (
            "negative_fact_number",
            good_record(supporting_facts=[["Jan", 0], ["Jan", -1]]),
            "supporting_facts[1][1]",
            "got -1, expected the number of a sentence, from 0",
        ),
        ("number_answer", good_record(answer=1984), "answer", "got 1984"),
        ("number_type", good_record(type=1), "type", "expected a string"),
        ("number_level", good_record(level=1), "level", "expected a string"),
    )
    def test_bad_record(self, value, field, message):
        path = self._write([good_record(_id="first"), value])
        for split in records.SPLITS:
            reader = records.read_records(path, split)
            self.assertEqual("first", next(reader).id)
            with self.assertRaisesRegex(RecordError, message) as caught:
                next(reader)
            error = str(caught.exception)
            self.assertStartsWith(error, f"{path}, record 1")
            self.assertIn(f"field '{field}':", error)
            self.assertIn("--skip_bad_records", error)
            if isinstance(value.get("_id"), str):
                self.assertIn(f"(id '{value['_id']}')", error)

        bad_records = BadRecords(skip=True)
        content = [good_record(_id="first"), value, good_record(_id="last")]
        read = self._read(content, "train", bad_records)
        self.assertEqual(["first", "last"], [record.id for record in read])
        self.assertEqual([0, 2], [record.index for record in read])
        self.assertEqual(1, bad_records.total)

    def test_not_an_object(self):
        with self.assertRaisesRegex(RecordError, "expected a HotpotQA record"):
            self._read([["Jan", 0]])

    def test_json_null_is_no_value(self):
        for field in good_record():
            value = {**good_record(), field: None}
            with self.assertRaisesRegex(RecordError, f"'{field}': got None"):
                self._read([value], "predict")

    @parameterized.product(
        split=["train", "dev"],
        change=[
            ("answer", None, "missing"),
            ("answer", " ", "empty"),
            ("supporting_facts", None, "missing"),
            ("supporting_facts", [], "empty"),
        ],
    )
    def test_needs_answer_and_facts(self, split, change):
        field, value, problem = change
        content = [good_record(**{field: value})]
        with self.assertRaisesRegex(
            RecordError,
            f"'{field}': it is {problem}.*'{split}'.*--split=predict",
        ):
            self._read(content, split)
        (record,) = self._read(content, "predict")
        if field == "answer":
            self.assertEqual(value, record.answer)
            self.assertEqual(((0, 0), (1, 1)), record.fact_positions)
        else:
            self.assertEqual("Czech Republic", record.answer)
            self.assertEqual((), record.fact_positions)

    def test_predict_needs_neither(self):
        (record,) = self._read(
            [good_record(answer=None, supporting_facts=None)], "predict"
        )
        self.assertIsNone(record.answer)
        self.assertIsNone(record.supporting_facts)

    def test_invalid_utf8_is_skipped_alone(self):
        content = (
            json.dumps([good_record(_id=f"r{i}") for i in range(3)])
            .encode()
            .replace(b"Moravia", b"M\xe4hren", 1)
        )
        with self.assertRaisesRegex(
            RecordError, "id 'r0'.*'context'.*not UTF-8"
        ):
            self._read(content)
        bad_records = BadRecords(skip=True)
        read = self._read(content, "train", bad_records)
        self.assertEqual(["r1", "r2"], [record.id for record in read])
        self.assertEqual({"invalid UTF-8": 1}, dict(bad_records.counts))

    def test_large_records(self):
        context = [
            [f"title {i}", [f"sentence {j}" for j in range(1000)]]
            for i in range(100)
        ]
        facts = [[f"title {i}", 999] for i in range(100)]
        (record,) = self._read(
            [good_record(context=context, supporting_facts=facts)]
        )
        self.assertEqual(
            tuple((i, 999) for i in range(100)), record.fact_positions
        )

    def test_truncated_file(self):
        content = json.dumps([good_record(_id="a"), good_record(_id="b")])
        path = self._write(content[:-40].encode())
        for skip in (False, True):  # What is lost cannot be skipped.
            with self.assertRaisesRegex(UserError, "after 1 whole records"):
                list(records.read_records(path, bad_records=BadRecords(skip)))

    def test_reports_position(self):
        content = json.dumps([good_record(_id="a"), good_record(_id="b")])
        positions = []
        self._read(content.encode(), "train", None, positions.append)
        self.assertEqual([len(content)] * 2, positions)

    def test_unknown_split(self):
        with self.assertRaisesRegex(ValueError, "split"):
            self._read([], "test")


if __name__ == "__main__":
    tf.test.main()
