import json
import os

from absl.testing import absltest
from absl.testing import parameterized

from etcmodel.datasets import question_answering
from etcmodel.datasets.question_answering import records
from etcmodel.datasets.question_answering import squad
from etcmodel.errors import BadRecords
from etcmodel.errors import UserError
from testing.helpers import real_data_path
from testing.helpers import write_file

_CONTEXT = " Jan lives in Brno."


def _article(**changes):
    questions = [
        {
            "id": "1",
            "question": "Where?",
            "answers": [{"text": "Brno", "answer_start": 14}],
        },
        {
            "id": "2",
            "question": "When?",
            "answers": [],
            "plausible_answers": [{"text": "Jan", "answer_start": 1}],
            "is_impossible": True,
        },
        {"id": "3", "question": "Who?"},
    ]
    paragraph = {"context": _CONTEXT, "qas": questions} | changes
    return {"title": "Jan_Novák", "paragraphs": [paragraph]}


class SquadTest(parameterized.TestCase):
    @parameterized.parameters(
        ({},), ({"version": "v2.0"},), ({"version": 2, "about": None},)
    )
    def test_reads_questions(self, start):
        path = write_file(self, {**start, "data": [_article()]})
        positions = []
        first, second, third = question_answering.FORMAT.read(
            path, "predict", on_position=positions.append
        )
        self.assertEqual([os.path.getsize(path)] * len(positions), positions)
        self.assertEqual(
            ("1", "Where?", "Jan Novák", (("Jan lives in Brno.",),)),
            (
                *(first.id, first.question),
                *(first.sections[0].title, first.paragraphs),
            ),
        )
        answer = records.Answer("Brno", records.Place(0, 0, 13, 17))
        self.assertEqual((answer,), first.answers)
        self.assertEqual(((), "none"), (second.answers, second.answer_type))
        self.assertIsNone(third.answers)
        self.assertEqual([0, 1, 2], [first.index, second.index, third.index])

    def test_other_fields(self):
        """SQuAD files are read with any field names in the format."""
        format_ = question_answering.make_format("a", "b", "c", "d")
        path = write_file(self, {"data": [_article()]})
        self.assertLen(list(format_.read(path, "predict")), 3)

    @parameterized.parameters(
        ({"context": 5}, r"'context\[0\].text': got 5, expected a string"),
        ({"context": None}, r"'context\[0\]': got .*, expected a section"),
        ({"qas": {}}, r"'data\[1\].paragraphs\[0\].qas': got {}, expected a l"),
        ({"qas": [5]}, r"'data\[1\].paragraphs\[0\].qas\[0\]': got 5"),
    )
    def test_bad_articles(self, changes, message):
        path = write_file(
            self,
            {"data": [_article(qas=[]), _article(**changes), 5, _article()]},
        )
        bad_records = BadRecords(skip=True)
        read = question_answering.FORMAT.read(path, "predict", bad_records)
        self.assertEqual(["1", "2", "3"], [x.id for x in read])
        self.assertRegex(bad_records.examples[0], message)
        self.assertIn("not in SQuAD's format", bad_records.counts)

    def test_rows_are_not_squad(self):
        for row in ({"data": "a"}, {"version": "1", "data": [5]}, [{}]):
            self.assertFalse(squad.is_squad(write_file(self, row)))

    def test_truncated(self):
        path = write_file(self, {"data": [_article(), _article()]})
        with open(path, "r+b") as stream:
            stream.truncate(os.path.getsize(path) - 30)
        with self.assertRaisesRegex(UserError, "after 1 whole records"):
            list(question_answering.FORMAT.read(path, "predict"))

    def test_real_records(self):
        path = real_data_path("squad/train.json")
        bad_records = BadRecords(skip=True)
        read = list(question_answering.FORMAT.read(path, "train", bad_records))
        self.assertLen(read, 2022)
        with open(path, encoding="utf-8") as stream:
            articles = json.load(stream)["data"]
        expected = {
            question["id"]: {
                (x["text"], paragraph["context"][x["answer_start"] :])
                for x in question["answers"]
            }
            for article in articles
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        }
        for record in read:
            actual = set()
            for answer in record.answers:
                place = answer.place
                text = record.paragraphs[place.paragraph][place.text]
                self.assertEqual(answer.text, text[place.start : place.end])
                actual.add(answer.text)
            self.assertEqual({x for x, _ in expected[record.id]}, actual)
            self.assertEqual(0, sum(record.counts.values()))


if __name__ == "__main__":
    absltest.main()
