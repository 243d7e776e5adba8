"""Tests of HotpotQA's records; `readers/records_test.py` tests errors."""

import json

import msgspec
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.hotpotqa import records
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.hotpotqa.records import Paragraph
from testing import samples
from testing.helpers import real_data_path
from testing.helpers import write_file


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
    def _read(self, content, *args):
        return [*records.FORMAT.read(write_file(self, content), *args)]

    @parameterized.parameters(*records.FORMAT.splits)
    def test_reads_a_record(self, split):
        (record,) = self._read([samples.hotpotqa()], split)
        first = Paragraph("Jan", ("Jan was born in Brno.", " He paints."))
        second = "Brno is a city.", " It is in Moravia.", ""
        self.assertEqual(
            HotpotQARecord(
                id="5a7a",
                question="In which country was Jan born?",
                context=(first, Paragraph("Brno", second)),
                answer="Czech Republic",
                supporting_facts=(("Jan", 0), ("Brno", 1)),
                type="bridge",
                level="hard",
                source=record.source,
            ),
            record,
        )
        self.assertEqual(((0, 0), (1, 1)), record.fact_positions)
        self.assertEqual(0, record.num_missing_facts)

    def test_optional_fields(self):
        value = samples.hotpotqa(type=None, level=None)
        for field in ("answer", "supporting_facts"):
            del value[field]
        (record,) = self._read([value], "predict")
        self.assertEqual(("", ""), (record.type, record.level))
        self.assertIsNone(record.answer)
        self.assertIsNone(record.supporting_facts)

    @parameterized.named_parameters(
        ("dev", "hotpotqa/dev_95.json", 95, 0),
        # Some of HotpotQA's facts are out of range, but none in these samples.
        ("2wiki", "hotpotqa/2wiki_train_500.json", 500, 6),
    )
    def test_real_records(self, name, count, missing):
        path = real_data_path(name)
        read = list(records.FORMAT.read(path, "dev"))
        self.assertLen(read, count)
        self.assertEqual(missing, sum(r.num_missing_facts for r in read))
        with open(path, encoding="utf-8") as stream:
            expected = json.load(stream)
        for record, value in zip(read, expected, strict=True):
            read_back = json.loads(msgspec.json.encode(record))
            for field in samples.hotpotqa():
                self.assertEqual(value[field], read_back[field])
            named = [
                [record.context[paragraph].title, sentence]
                for paragraph, sentence in record.fact_positions
            ]
            # No fact of these files is repeated.
            found = [x for x in value["supporting_facts"] if x in named]
            self.assertNotEmpty(found)
            self.assertEqual(found, named)
            self.assertEqual(
                len(value["supporting_facts"]),
                len(named) + record.num_missing_facts,
            )

    @parameterized.named_parameters(
        ("absent_title", [["jan", 0], ["Brno", 2]], ((1, 2),), 1),
        ("out_of_range", [["Brno", 3], ["Jan", 9], ["Jan", 1]], ((0, 1),), 2),
        ("twice", [["Brno", 0], ["Jan", 1], ["Brno", 0]], ((1, 0), (0, 1)), 0),
        ("all_missing", [["x", 0], ["y", 0]], (), 2),
        # The first "Jan" has two sentences, the other one three.
        ("titles", [["Jan", 1], ["Jan", 2], ["Jan", 3]], ((0, 1), (2, 2)), 1),
        ("no_sentences", [["Jan", 0], ["E", 0]], ((0, 0), (4, 0)), 0),
    )
    def test_fact_positions(self, facts, positions, missing):
        value = samples.hotpotqa(supporting_facts=facts)
        value["context"] += [["Jan", ["a", "b", "c"]], ["E", []], ["E", ["d"]]]
        (record,) = self._read([value])
        self.assertEqual(positions, record.fact_positions)
        self.assertEqual(missing, record.num_missing_facts)

    def test_titles_in_other_characters(self):
        """Facts get their paragraph's title, even if normal forms differ."""
        value = samples.hotpotqa(
            supporting_facts=[["Jos\u00e9 &amp; co", 0], ["Brno", 0], ["x", 0]]
        )
        value["context"].append(["Jose\u0301\u00a0& co", ["a"]])
        (record,) = self._read([value])
        self.assertEqual(
            (("Jose\u0301\u00a0& co", 0), ("Brno", 0), ("x", 0)),
            record.supporting_facts,
        )
        last = len(record.context) - 1
        self.assertEqual(((last, 0), (1, 0)), record.fact_positions)
        self.assertEqual(0, record.index)

    def test_no_facts(self):
        record = HotpotQARecord("a", "q", (Paragraph("t", ("s",)),))
        self.assertEqual((), record.fact_positions)
        self.assertEqual(0, record.num_missing_facts)
        # A negative index must not count from the end.
        record = HotpotQARecord(
            "a", "q", record.context, supporting_facts=(("t", -1),)
        )
        self.assertEqual((), record.fact_positions)
        self.assertEqual(1, record.num_missing_facts)


if __name__ == "__main__":
    tf.test.main()
