"""Tests of the preprocessor: places of answers, and evidence."""

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.answer.task import TASK
from testing.records import RecordsTestCase

# A paragraph of two sentences, and a paragraph of one.
_STRING = "Žán is in Brno. Is Brno big?\n\nBrno is Brno."
_TITLED = [{"title": "Brno", "text": _STRING}]
# The unit "- Brno" also occurs inside another unit.
_ITEMS = "In Brno:\n- Brno z. B. Brno\n- Brno"
_LISTS = [["Žán is in Brno. Is Brno big?", "Brno."], ["Brno is Brno."]]


def _at(text, start):
    return [{"text": text, "answer_start": start}]


class RecordsTest(RecordsTestCase):
    TASK = TASK
    WORDS = "zan is in brno . big ? where"
    SIZES = {"long_length": 40, "global_length": 16}

    def _write(self, units, document, answers, split="dev", sizes=(), **row):
        """Stores a row of a data file; returns the stored values and counts."""
        sizes = {"units": units, **dict(sizes)}
        row = {"text": document, "answers": answers, **row}
        record = self.read({"question": "Where?", **row}, **sizes)
        return self.store(record, split, **sizes)

    def _spans(self, stored):
        """Returns the unit and the text of each answer."""
        spans = []
        for begin, end in zip(
            stored["answer_begins"], stored["answer_ends"], strict=True
        ):
            sentence = stored["long_sentence_ids"][begin]
            self.assertEqual(sentence, stored["long_sentence_ids"][end])
            unit = stored["global_units"][sentence]
            start, end = stored["long_starts"][begin], stored["long_ends"][end]
            text = stored["units"][unit][start:end].decode("utf-8")
            spans.append((unit, text))
        return spans

    @parameterized.parameters(
        # Offsets count characters; "Ž" and "á" are one character each.
        ("sentences", _STRING, _at("Brno", 10), [(0, "Brno")]),
        ("sentences", _STRING, _at("Brno", 19), [(1, "Brno")]),
        ("sentences", _STRING, _at("Brno", 30), [(2, "Brno")]),
        ("sentences", _STRING, _at("Brno", 38), [(2, "Brno")]),
        ("sentences", _STRING, _at("Žán is in", 0), [(0, "Žán is in")]),
        ("sentences", _ITEMS, _at("Brno", 11), [(1, "Brno")]),
        ("sentences", _ITEMS, _at("Brno", 22), [(1, "Brno")]),
        ("sentences", _ITEMS, _at("Brno", 29), [(2, "Brno")]),
        # A part of a word is extended to the whole word.
        ("sentences", _STRING, _at("rno", 11), [(0, "Brno")]),
        # A title is unit 0; offsets do not count it.
        ("sentences", _TITLED, _at("Brno", 19), [(2, "Brno")]),
        ("sentences", _TITLED, _at("Brno", 30), [(3, "Brno")]),
        # Offsets count one character between texts, and two between paragraphs.
        ("texts", _LISTS, _at("Brno", 19), [(0, "Brno")]),
        ("texts", _LISTS, _at("Brno", 29), [(1, "Brno")]),
        ("texts", _LISTS, _at("Brno", 44), [(2, "Brno")]),
        ("paragraphs", _LISTS, _at("Brno", 29), [(0, "Brno")]),
        ("paragraphs", _TITLED, _at("Brno", 19), [(1, "Brno")]),
        # Two forms of the answer are each labelled at their own place.
        (
            "sentences",
            _STRING,
            _at("in Brno", 7) + _at("Brno", 10),
            [(0, "in Brno"), (0, "Brno")],
        ),
        # Without offsets, all occurrences are labelled, including those in
        # titles.
        (
            "sentences",
            _TITLED,
            "Brno",
            [(0, "Brno"), (1, "Brno"), (2, "Brno"), (3, "Brno"), (3, "Brno")],
        ),
        ("sentences", _STRING, "zán", []),
        ("sentences", _STRING, "ŽÁN", [(0, "Žán")]),
    )
    def test_answers(self, units, document, answers, expected):
        stored, counts = self._write(units, document, answers)
        self.assertEqual(expected, self._spans(stored))
        self.assertEqual([0], stored["answer_type"])
        self.assertEqual(int(not expected), counts["answers_in_no_unit"])
        self.assertEqual(0, counts["answers_cut"])

    def test_answer_across_sentences(self):
        """Counts such answers; labels them only if units are paragraphs."""
        answer = _at("Brno. Is", 10)
        for split in ("dev", "train"):
            stored, counts = self._write(
                "sentences", _STRING, answer, split=split
            )
            self.assertEqual(1, counts["answers_in_no_unit"])
            self.assertEqual(split == "train", stored is None)
        stored, counts = self._write("paragraphs", _STRING, answer)
        self.assertEqual([(0, "Brno. Is")], self._spans(stored))
        self.assertEqual(0, counts["answers_in_no_unit"])

    def test_answer_across_sentences_moves_to_other_occurrences(self):
        text = "In Brno. Is it? Where: brno. is\n\nbig brno. is"
        answers = _at("Brno. Is", 3) + _at("Where", 16)
        stored, counts = self._write("sentences", text, answers)
        self.assertEqual(
            [(2, "brno. is"), (3, "brno. is"), (2, "Where")],
            self._spans(stored),
        )
        self.assertEqual(1, counts["answers_moved"])
        stored, counts = self._write("paragraphs", text, answers)
        self.assertEqual([(0, "Brno. Is"), (0, "Where")], self._spans(stored))
        self.assertEqual(0, counts["answers_moved"])
        # Answers without a place are not moved.
        _, counts = self._write("sentences", text, "Brno. Is")
        self.assertEqual(0, counts["answers_moved"])
        # An answer that occurs nowhere else is not moved.
        _, counts = self._write("sentences", _STRING, _at("Brno. Is", 10))
        self.assertEqual(0, counts["answers_moved"])

    @parameterized.parameters(
        # The first three answers begin or end inside a word.
        (_at("rno", 11), 1),
        ("bi", 1),
        ("rno is Brno.", 1),
        (_at("Brno", 10), 0),
        ("Brno", 0),
        # A longer text is not counted if one of the answers is exact.
        (_at("rno", 11) + _at("Brno", 10), 0),
        (_at("n Brno. I", 8), 0),
        ("yes", 0),
        ([], 0),
    )
    def test_answers_with_more_text(self, answers, expected):
        _, counts = self._write("sentences", _STRING, answers)
        self.assertEqual(expected, counts["answers_with_more_text"])

    def test_answer_that_is_cut(self):
        """The first sentence fills the input, so the answer is cut."""
        args = ("sentences", _STRING, _at("big", 24))
        sizes = {"long_length": 8}
        stored, counts = self._write(*args, sizes=sizes)
        self.assertEqual([], stored["answer_begins"])
        self.assertEqual(
            (1, 1, 1),
            tuple(
                counts[x] for x in ("answers_cut", "evidence", "evidence_cut")
            ),
        )
        self.assertIsNone(self._write(*args, "train", sizes)[0])

    # The expected labels belong to two paragraphs, of two units and of one.
    @parameterized.parameters(
        # Evidence defaults to the units with the answer.
        (_at("Brno", 19), {}, [1, 0, 1, 0, 0]),
        ("Brno", {}, [1, 1, 1, 1, 1]),
        # Labelled evidence is used with any answer; it may be given as text or
        # as a whole paragraph.
        (
            _at("Brno", 19),
            {"evidence": ["Brno is Brno."]},
            [0, 0, 0, 1, 1],
        ),
        ("big", {"evidence": [[0, -1]]}, [1, 1, 1, 0, 0]),
        ("yes", {"evidence": ["Is Brno big?"]}, [1, 0, 1, 0, 0]),
        ("yes", {"evidence": []}, [0, 0, 0, 0, 0]),
        # "No answer" has no evidence; the evidence of yes and no is unknown.
        ([], {}, [0, 0, 0, 0, 0]),
        ("no", {}, [-1] * 5),
        ("nowhere", {}, [-1] * 5),
        (_at("Brno", 19), {"sizes": {"evidence": "labelled"}}, [-1] * 5),
        ([], {"sizes": {"evidence": "labelled"}}, [-1] * 5),
    )
    def test_evidence(self, answers, row, expected):
        stored, counts = self._write("sentences", _STRING, answers, **row)
        expected = [-1, -1, -1, *expected]
        while expected and expected[-1] == -1:
            # Padding at the end is not stored.
            expected.pop()
        self.assertEqual(expected, stored["supporting_facts"])
        # The global tokens of units follow those of the CLS, "where" and "?".
        units = [
            x
            for i, x in zip(stored["global_units"], expected, strict=False)
            if i >= 0
        ]
        self.assertEqual(units.count(1), counts["evidence"])
        self.assertEqual(0, counts["evidence_cut"])

    @parameterized.parameters(
        ("sentences", _STRING, ["Is Brno big?"], [(1, "Brno")]),
        ("sentences", _STRING, [[1, -1]], [(2, "Brno"), (2, "Brno")]),
        ("texts", _LISTS, [[0, 1]], [(1, "Brno")]),
        ("paragraphs", _LISTS, [[1, 0]], [(1, "Brno"), (1, "Brno")]),
        # The evidence does not contain the answer.
        ("texts", [["Brno."], ["big"]], [[1, 0]], [(0, "Brno")]),
    )
    def test_answers_without_offsets_are_in_evidence(
        self, units, document, evidence, expected
    ):
        stored, _ = self._write(units, document, "Brno", evidence=evidence)
        self.assertEqual(expected, self._spans(stored))

    @parameterized.parameters(
        ("Brno", 0, ""),
        (" Yes", 1, "answers_yes_or_no"),
        ("no", 2, "answers_yes_or_no"),
        ([], 3, "no_answers"),
    )
    def test_types(self, answers, expected, counted):
        for split in ("dev", "train"):
            stored, counts = self._write(
                "sentences", _STRING, answers, split=split
            )
            self.assertEqual([expected], stored["answer_type"])
            self.assertEqual(expected == 0, bool(stored["answer_begins"]))
            for name in ("answers_yes_or_no", "no_answers"):
                self.assertEqual(int(name == counted), counts[name])

    def test_wrong_offsets_are_counted(self):
        """Labels the nearest occurrence; drops answers that do not occur."""
        answers = _at("Brno", 17) + _at("Oslo", 0)
        stored, counts = self._write("sentences", _STRING, answers)
        self.assertEqual([(1, "Brno")], self._spans(stored))
        self.assertEqual(
            (1, 1), (counts["answers_moved"], counts["answers_not_in_text"])
        )


if __name__ == "__main__":
    tf.test.main()
