"""Tests of TriviaQA; `readers/records_test.py` tests more errors in records."""

import json
import os
import unicodedata
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import answer_spans
from etcmodel.datasets import triviaqa
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from testing import samples
from testing.helpers import real_data_path
from testing.helpers import write_file


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, values, **pages):
        root = self.get_temp_dir()
        samples.write_evidence(root)
        samples.write_evidence(root, **pages)
        path = os.path.join(root, "qa", "web-dev.json")
        os.mkdir(os.path.dirname(path))
        with open(path, "w") as stream:
            json.dump({"Domain": "Web", "Data": values, "Version": 1}, stream)
        return path

    def test_reads_a_record(self):
        unanswered = samples.triviaqa(QuestionId="b", Answer=None)
        path = self._write([samples.triviaqa(), unanswered])
        record, other = triviaqa.FORMAT.read(path, "predict")
        self.assertIsNone(triviaqa.gold(other))
        self.assertEqual("tc_1", record.id)
        self.assertEqual(
            "Brno is a city.\nIt has a castle.\nŠpilberk, in Brünn", record.text
        )
        self.assertEqual(
            ("Brno", "Brünn", "BRNO", "The Brno!", "brünn", "brno"),
            record.answers,
        )
        self.assertEqual(("brünn", "brno", "brno"), triviaqa.gold(record))

    @parameterized.parameters(
        (
            {"wikipedia/Brno.txt": None, "web/4/4_2.txt": None},
            "EntityPages.0..Filename.*Brno.txt does not exist",
        ),
        # One page is missing, and the other has no text.
        (
            {"wikipedia/Brno.txt": None, "web/4/4_2.txt": " "},
            "EntityPages.0..Filename.*Brno.txt does not exist",
        ),
        ({"wikipedia/Brno.txt": b"\xe4"}, "EntityPages.0..*not UTF-8"),
    )
    def test_bad_evidence(self, pages, message):
        """The record is skipped, or the error names record, field and file."""
        path = self._write(
            [
                samples.triviaqa(),
                samples.triviaqa(QuestionId="b", SearchResults=[]),
            ],
            **pages,
        )
        with self.assertRaisesRegex(RecordError, f"'tc_1'.*{message}"):
            list(triviaqa.FORMAT.read(path, "predict"))
        bad_records = BadRecords(skip=True)
        read = [*triviaqa.FORMAT.read(path, "train", bad_records)]
        self.assertEqual(2, len(read) + bad_records.total)
        self.assertGreaterEqual(bad_records.total, 1)

    @parameterized.parameters("../qa/web-dev.json", "a/../../x", "/dev/null")
    def test_evidence_outside_of_the_folder(self, name):
        path = self._write(
            [samples.triviaqa(SearchResults=[{"Filename": name}])]
        )
        with self.assertRaisesRegex(
            RecordError, f"SearchResults.0..Filename.*{name}.*evidence/web"
        ):
            list(triviaqa.FORMAT.read(path))

    def test_pages_without_text(self):
        """A question without text is an error only in training."""
        path = self._write(
            [
                samples.triviaqa(),
                samples.triviaqa(QuestionId="b", EntityPages=[]),
            ],
            **{"wikipedia/Brno.txt": " \n", "web/4/4_2.txt": ""},
        )
        with self.assertRaisesRegex(
            RecordError, "'tc_1'.*'EntityPages'.*none of its pages has any text"
        ):
            list(triviaqa.FORMAT.read(path, "train"))
        for split in ("dev", "predict"):
            texts = [x.text for x in triviaqa.FORMAT.read(path, split)]
            self.assertEqual(["", ""], texts)

    def test_missing_page_of_several(self):
        """The other pages are used, and the missing page is counted."""
        path = self._write([samples.triviaqa()], **{"web/4/4_2.txt": None})
        (record,) = triviaqa.FORMAT.read(path)
        self.assertEqual("Brno is a city.\nIt has a castle.", record.text)
        self.assertEqual({"evidence_pages_missing": 1}, record.counts)

    def test_pages_are_opened_without_a_check(self):
        """Does not check that pages exist: requests to buckets are slow."""
        path = self._write([samples.triviaqa()])
        with mock.patch("os.path.exists", wraps=os.path.exists) as exists:
            list(triviaqa.FORMAT.read(path))
        asked = [str(call.args[0]) for call in exists.call_args_list]
        self.assertEqual([], [x for x in asked if x.endswith(".txt")])

    @parameterized.parameters("NFC", "NFD")
    def test_page_in_the_other_normal_form(self, form):
        """A file's name may have a different normal form than in the record."""
        name = "Jos\u00e9 \u1ec7.txt"
        names = [unicodedata.normalize(x, name) for x in ("NFC", "NFD")]
        path = self._write(
            [samples.triviaqa(EntityPages=[{"Filename": x} for x in names])],
            **{f"wikipedia/{unicodedata.normalize(form, names[0])}": "Here."},
        )
        (record,) = triviaqa.FORMAT.read(path)
        self.assertEqual(
            "Here.\nHere.\n\u0160pilberk, in Br\u00fcnn", record.text
        )
        self.assertEqual({"evidence_pages_missing": 0}, record.counts)

    def test_other_files(self):
        for value, message in (
            ({"version": []}, "no records under 'Data'"),
            ([], r"holds a JSON array.*, expected a JSON object {\"Data\": "),
        ):
            with self.assertRaisesRegex(UserError, message):
                list(triviaqa.FORMAT.read(write_file(self, value)))

    @parameterized.parameters(
        ("wikipedia", "Judi Dench"), ("web", "Sinclair Lewis")
    )
    def test_real_records(self, name, text):
        path = real_data_path(f"triviaqa/qa/{name}-train.json")
        records = [*triviaqa.FORMAT.read(path)]
        with open(path, encoding="utf-8") as stream:
            values = json.load(stream)["Data"]
        self.assertLen(records, len(values))
        for record, value in zip(records, values, strict=True):
            self.assertEqual(value["QuestionId"], record.id)
            self.assertEqual(value["Answer"]["Value"], record.answers[0])
            # The page of one question contains none of its answers.
            has_answer = answer_spans.find_answers(
                [record.text], record.answers
            )
            self.assertEqual(record.id != "tc_2", bool(has_answer))
        self.assertIn(text, records[0].text)


class MetricsTest(tf.test.TestCase):
    def test_normalized_as_by_the_official_script(self):
        for text, expected in (
            ("The  Quick-brown, an Apple!", "quick brown apple"),
            ("Rock_'n'_Roll", "rock n roll"),
            ("U.S.A.", "u s"),
            ("‘Ann´s` theatre’", "ann s theatre"),
            ("«x» Ä", "«x» ä"),
        ):
            self.assertEqual(expected, triviaqa.normalize_answer(text))

    def test_by_hand(self):
        """Of four answers, one is right, one partly, one missing, one wrong."""
        gold = {
            "a": ["york", "eboracum"],
            "b": ["new york", "big apple"],
            "c": ["x"],
            "d": ["y"],
        }
        scores = triviaqa.score(
            {"a": "Eboracum.", "b": "the York", "d": "z", "e": "x"}, gold
        )
        # Precision 1, and recall 1/2 for "new york": 2/3.
        self.assertAllClose(
            {"exact_match": 25.0, "f1": 100 * (1 + 2 / 3) / 4}, scores
        )
        self.assertEqual({"exact_match": 0, "f1": 0}, triviaqa.score({}, {}))


if __name__ == "__main__":
    tf.test.main()
