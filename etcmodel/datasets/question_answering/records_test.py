from absl.testing import absltest
from absl.testing import parameterized

from etcmodel.datasets.question_answering import records
from etcmodel.datasets.question_answering.places import Place
from etcmodel.datasets.question_answering.records import Answer
from etcmodel.errors import RecordError
from etcmodel.readers import cells
from testing import samples
from testing.helpers import real_data_path

_BRNO = Answer("Brno", Place(0, 0, 13, 17))
_MORAVIA = Answer("Moravia", Place(1, 0, 11, 18))


def _read(split="train", reading=None, **changes):
    row = {
        x: y
        for x, y in samples.question_answering(**changes).items()
        if y != "REMOVE"
    }
    format_ = records.make_format(**(reading or {}))
    (record,) = format_.read_rows([row], split)
    return record


class AnswersTest(parameterized.TestCase):
    @parameterized.parameters(
        ([{"text": "Moravia", "answer_start": 31}], [_MORAVIA]),
        (
            {"text": ["Moravia", "Brno"], "answer_start": [31, 13]},
            [_MORAVIA, _BRNO],
        ),
        ({"text": "Brno", "answer_start": 13}, [_BRNO]),
        ({"text": ["Brno"]}, [Answer("Brno")]),
        ("Brno", [Answer("Brno")]),
        (["Brno", "in Moravia", "Brno", " "], [Answer("Brno"), "in Moravia"]),
        ([{"text": "Brno"}], [Answer("Brno")]),
        ([{"text": "Brno", "answer_start": -1}], [Answer("Brno")]),
    )
    def test_forms(self, value, expected):
        expected = tuple(
            Answer(x) if isinstance(x, str) else x for x in expected
        )
        for field in ("answers", "answer"):
            record = _read(**{"answers": "REMOVE", field: value})
            self.assertEqual(expected, record.answers)
            self.assertEqual("span", record.answer_type)
            self.assertEqual(0, sum(record.counts.values()))
            self.assertEqual("Where is Brno?", record.question)

    @parameterized.parameters(
        (["Brno"], [13], [_BRNO]),
        (["Moravia", "Brno", ""], [31, 13, 0], [_MORAVIA, _BRNO]),
        (["Brno", "Moravia"], ["13", -1.0], [_BRNO, Answer("Moravia")]),
        (["Brno"], 13, [_BRNO]),
        (["Brno", "in Moravia"], "", [Answer("Brno"), Answer("in Moravia")]),
        ([], [], []),
        ([], -1, []),
    )
    def test_a_list_of_texts_beside_offsets(self, texts, starts, expected):
        record = _read("dev", answers=texts, answer_start=starts)
        self.assertEqual(tuple(expected), record.answers)
        self.assertEqual(0, sum(record.counts.values()))

    @parameterized.parameters(
        ("{'text': ['Brno'], 'answer_start': [13]}", [_BRNO]),
        ('{"text": ["Brno"], "answer_start": [13]}', [_BRNO]),
        ("{'text': 'Brno', 'answer_start': 13}", [_BRNO]),
        ("{'text': [], 'answer_start': []}", []),
        # The format of Hugging Face's `Dataset.to_csv`.
        (
            "{'text': array(['Moravia', 'Brno'],\n      dtype=object), "
            "'answer_start': array([31, 13], dtype=int32)}",
            [_MORAVIA, _BRNO],
        ),
        # Not valid as dicts, so read as texts.
        ("{'text': ['Brno']", None),
        ("{Brno}", None),
    )
    def test_cells_with_a_dict(self, cell, expected):
        record = _read("dev", answers=cells.read_cell(cell))
        if expected is None:
            expected = [Answer(cell)]
        self.assertEqual(tuple(expected), record.answers)

    @parameterized.parameters(
        "{'words': ['Brno']}", "{'text': array(['a', ..., 'Brno'])}"
    )
    def test_dicts_that_cannot_be_read(self, cell):
        with self.assertRaisesRegex(RecordError, "field 'answers': got "):
            _read("dev", answers=cell)

    def test_numbers_in_cells(self):
        """Reads whole numbers given as strings, or as floats by pandas."""
        for changes in (
            {"answer_start": 13.0, "is_impossible": 0.0},
            {"answer_start": "13.0", "is_impossible": "0.0"},
            {"answer_start": "13", "is_impossible": "False"},
        ):
            record = _read(answers="Brno", **changes)
            self.assertEqual((_BRNO,), record.answers)
        for flag in (1.0, "1.0", "1", "TRUE"):
            self.assertEqual((), _read(is_impossible=flag).answers)
        for answers in (1990, [1990], {"text": [1990], "answer_start": [0]}):
            record = _read(text="1990 was hot.", answers=answers)
            self.assertEqual("1990", record.answers[0].text)

    @parameterized.parameters("", " ", ([],), ({"text": []},))
    def test_answer_missing_but_not_impossible(self, answers):
        changes = {"answers": answers, "is_impossible": False}
        with self.assertRaisesRegex(RecordError, "or set it to true"):
            _read(**changes)
        self.assertIsNone(_read("predict", **changes).answers)

    @parameterized.parameters(
        (" Yes", "yes"),
        (["no", "Brno"], "no"),
        ("yes, it is in Brno", "span"),
        ([{"text": "no", "answer_start": 8}], "span"),
        ("", "none"),
        ([], "none"),
        ({"text": [], "answer_start": []}, "none"),
    )
    def test_types(self, value, expected):
        record = _read("dev", answers=value)
        self.assertEqual(expected, record.answer_type)
        self.assertEqual(expected == "none", record.answers == ())

    def test_impossible(self):
        for changes in ({}, {"answers": None}, {"answers": []}):
            record = _read(is_impossible=True, **changes)
            self.assertEqual(("none", ()), (record.answer_type, record.answers))
        record = _read("predict", answers=None, is_impossible=False)
        self.assertIsNone(record.answers)

    def test_no_answer_is_not_allowed(self):
        reading = {"allow_no_answer": False}
        for split in ("train", "dev"):
            with self.assertRaisesRegex(
                RecordError, "'answers': it is missing"
            ):
                _read(split, reading, answers=[])
        self.assertIsNone(_read("predict", reading, answers=[]).answers)

    def test_offsets_that_do_not_fit(self):
        """Counts moved and missing answers; fails if all are missing."""
        wrong = [
            {"text": "Brno", "answer_start": 21},
            {"text": "Moravia", "answer_start": 31},
            {"text": "Prague", "answer_start": 13},
        ]
        record = _read(answers=wrong)
        self.assertEqual(
            (
                Answer("Brno", Place(1, 0, 0, 4)),
                _MORAVIA,
                Answer("Prague"),
            ),
            record.answers,
        )
        self.assertEqual(
            {"answers_moved": 1, "answers_not_in_text": 1}, record.counts
        )
        for answers in (wrong[2:], "Prague", ["Prague", "Praha"]):
            with self.assertRaisesRegex(
                RecordError, "'answers': got 'Prague', expected a part of the"
            ):
                _read(answers=answers)
            for split in ("dev", "predict"):
                record = _read(split, answers=answers)
                self.assertEqual(Answer("Prague"), record.answers[0])
                self.assertEqual(0, record.counts["answers_moved"])

    @parameterized.parameters(
        ({"question": "REMOVE"}, "'question': it is missing, as are 'query'"),
        ({"question": " "}, "'question': it is empty"),
        ({"question": ["a", "b"]}, "'question': got .*, expected a string"),
        ({"query": "Why?"}, "'query': the record also has 'question'"),
        ({"answers": True}, "'answers': got True, expected a string, a list"),
        ({"answers": [None]}, r"'answers\[0\]': got None, expected a string"),
        ({"answers": [{}]}, r"'answers\[0\]': got {}, expected a string or"),
        ({"answers": {"text": {}}}, "'answers': got {'text': {}}, expected"),
        ({"answers": {"text": ["a", None]}}, r"'answers.text\[1\]': got N"),
        (
            {"answers": {"text": ["a"], "answer_start": [1, 2]}},
            "'answers.answer_start': got .*, a list of 2, .* a list of 1 whole",
        ),
        (
            {"answers": ["a", "b"], "answer_start": [1]},
            "'answer_start': got .*, a list of 1, .* a list of 2 whole",
        ),
        (
            {"answers": [], "answer_start": [1]},
            "'answer_start': got .*, a list of 1, .* a list of 0 whole",
        ),
        (
            {"answers": ["a", "b"], "answer_start": 1},
            "'answer_start': got 1, expected a list of 2 whole",
        ),
        (
            {"answers": ["a", "b"], "answer_start": [1, "x"]},
            r"'answer_start\[1\]': got 'x', expected a whole",
        ),
        *(
            (
                {"answers": [{"text": "a", "answer_start": x}]},
                rf"'answers\[0\].answer_start': got .*{x}.*, expected a whole",
            )
            for x in ("x", 1.5, True)
        ),
        ({"is_impossible": "maybe"}, "'is_impossible': got 'maybe', exp"),
        ({"answer": "Brno"}, "'answer': the record also has 'answers'"),
        ({"evidence": 5}, "'evidence': got 5, expected a list of positions"),
    )
    def test_errors(self, changes, message):
        for split in records.FORMAT.splits:
            with self.assertRaisesRegex(
                RecordError, f"id '7'.*field {message}"
            ):
                _read(split, **changes)

    def test_evidence(self):
        paragraphs = [["Jan lives in Brno."], ["Brno is in Moravia."]]
        changes = {"text": paragraphs, "answers": "Moravia"}
        for field in ("evidence", "supporting_facts"):
            record = _read(**changes, **{field: [[1, 0]]})
            self.assertEqual(((1, 0),), record.evidence)
        self.assertIsNone(_read(**changes, evidence="").evidence)
        record = _read(evidence=["Brno is in Moravia."])
        self.assertEqual((), record.evidence)
        self.assertEqual(("Brno is in Moravia.",), record.evidence_texts)
        reading = {"evidence_field": "why"}
        record = _read("train", reading, **changes, why=[[0, 0]], evidence=5)
        self.assertEqual(((0, 0),), record.evidence)
        # If paragraphs are the units, whole paragraphs are evidence.
        reading = {"units": "paragraphs"}
        record = _read("train", reading, **changes, evidence=[[1, 0]])
        self.assertEqual(((1, -1),), record.evidence)
        with self.assertRaisesRegex(ValueError, "units is 'words'"):
            records.make_format(units="words")

    def test_real_hotpotqa(self):
        """HotpotQA's files are read as rows, given the id field's name."""
        path = real_data_path("hotpotqa/dev_95.json")
        read = list(records.make_format(id_field="_id").read(path))
        self.assertLen(read, 95)
        self.assertTrue(all(x.evidence for x in read))
        self.assertEqual({"span", "yes", "no"}, {x.answer_type for x in read})


if __name__ == "__main__":
    absltest.main()
