"""Tests of errors that all tasks' readers share."""

import gc
import gzip
import json
import os
import weakref

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import classification as classification
from etcmodel.datasets import documents as pretraining
from etcmodel.datasets import openkp as openkp
from etcmodel.datasets import question_answering as question_answering
from etcmodel.datasets import selection as selection
from etcmodel.datasets import triviaqa as triviaqa
from etcmodel.datasets import wikihop as wikihop
from etcmodel.datasets.hotpotqa import records as hotpotqa
from etcmodel.datasets.nq import records as nq
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.readers import files
from testing import samples
from testing.tasks import REMOVE
from testing.tasks import changed

_NQ = samples.nq()
# Name -> module, a good record, its id field, its field with "Moravia".
_FORMATS = {
    "wikihop": (wikihop, samples.wikihop(), "id", "supports"),
    "hotpotqa": (hotpotqa, samples.hotpotqa(), "_id", "context"),
    "nq": (nq, _NQ, "example_id", "document_tokens"),
    "nq_simplified": (
        *(nq, samples.simplified_nq(_NQ)),
        *("example_id", "document_text"),
    ),
    "openkp": (openkp, samples.openkp(), "url", "text"),
    "pretraining": (pretraining, samples.DOCUMENT, "id", "text"),
    "triviaqa": (
        *(triviaqa, samples.triviaqa()),
        *("QuestionId", "Question"),
    ),
    "classify": (
        *(classification, samples.classification()),
        *("id", "text"),
    ),
    "select": (selection, samples.selection(), "id", "paragraphs"),
    "answer": (
        *(question_answering, samples.question_answering()),
        *("id", "text"),
    ),
}

_INTEGER = "expected a whole number"
_OBJECT = "expected a JSON object"
_OBJECTS = "expected a list of JSON objects"
_STRING = "expected a string"
# Place, wrong value to put there, message, and the field that the message names
# (the place by default).
_WIKIHOP = [
    *((x, REMOVE, "missing") for x in ("id", "query", "supports")),
    ("id", 4, f"got 4, {_STRING}"),
    ("id", " ", "it is empty"),
    ("id", "1", "an earlier record has the same"),
    ("query", " ", "it is empty"),
    ("supports", "text", "expected a list of strings"),
    ("supports[0]", ["a"], _STRING),
    ("candidates", REMOVE, "missing"),
    ("candidates[2]", " ", "got ' ', expected some text"),
]
_FACT = "supporting_facts[1]"
_HOTPOTQA = [
    *((x, REMOVE, "missing") for x in ("_id", "question", "context")),
    # JSON's null means that there is no answer.
    *(
        (x, None, "got None")
        for x in ("_id", "question", "context", "type", "level")
    ),
    ("_id", 4, f"got 4, {_STRING}"),
    ("_id", " ", "it is empty"),
    ("_id", "1", "an earlier record has the same"),
    ("question", ["a"], _STRING),
    ("question", " ", "it is empty"),
    ("answer", 1984, "got 1984"),
    ("type", 1, _STRING),
    ("level", 1, _STRING),
    ("context", "text", r"got 'text', expected .* \[title, \[sent.*\]\]"),
    ("context[1]", {"title": "a"}, r"\[title, \[sent"),
    ("context[0]", ["a"], "a list of 1, expected"),
    ("context[1]", ["a", ["b"], "c"], "a list of 3, expected"),
    ("context[0][0]", 1984, f"got 1984, {_STRING}"),
    ("context[1][1]", "d", "got 'd', .* of strings"),
    ("context[1][1][1]", 7, f"got 7, {_STRING}"),
    ("supporting_facts", "Jan", r"expected a list of \[title, number of the s"),
    (_FACT, "Jan", "got 'Jan', expected"),
    (_FACT, ["Jan"], "a list of 1, expected"),
    (_FACT, ["Jan", 0, 1], "a list of 3, expected"),
    (f"{_FACT}[0]", 1984, _STRING),
    *((f"{_FACT}[1]", x, f"got {x!r}, {_INTEGER}") for x in ("1", True, 1.0)),
    (f"{_FACT}[1]", -1, "-1, .* a sentence's index, from 0"),
]
_C = "long_answer_candidates"
_A = "annotations[0]"
_LONG = "annotations[0].long_answer"
_SHORT = "annotations[0].short_answers"


def _span(start, end):
    return {"start_token": start, "end_token": end, "top_level": True}


# Errors that the original and the simplified format raise.
_ANY_NQ = [
    *(
        (place, REMOVE, "it is missing")
        for place in (
            *("example_id", "question_text", _C),
            *(f"{_C}[1].start_token", f"{_C}[1].end_token"),
            *(f"{_C}[1].top_level", _LONG, _SHORT, f"{_A}.yes_no_answer"),
            *(f"{_LONG}.start_token", f"{_LONG}.end_token"),
            *(f"{_SHORT}[1].start_token", f"{_SHORT}[1].end_token"),
        )
    ),
    *(
        ("example_id", x, f"got {x!r}, expected a whole number or a string")
        for x in (True, 1.5, None)
    ),
    ("example_id", " ", "it is empty"),
    ("example_id", "1", "an earlier record has the same"),
    ("example_id", 1, "an earlier record has the same"),
    ("question_text", ["a"], _STRING),
    ("question_text", " ", "it is empty"),
    (_C, {}, f"got {{}}, {_OBJECTS}"),
    (f"{_C}[1]", 4, f"got 4, {_OBJECT}"),
    (f"{_C}[2].start_token", False, f"got False, {_INTEGER}"),
    (f"{_C}[2].end_token", 9.5, f"got 9.5, {_INTEGER}"),
    (f"{_C}[2].top_level", 1, "got 1, expected true or false"),
    ("annotations[1]", [], _OBJECT),
    (_LONG, [3, 9], _OBJECT),
    (f"{_LONG}.start_token", None, f"got None, {_INTEGER}"),
    (f"{_LONG}.end_token", True, f"got True, {_INTEGER}"),
    (_SHORT, {}, _OBJECTS),
    (f"{_SHORT}[1]", 5, _OBJECT),
    (f"{_SHORT}[1].end_token", "5", f"got '5', {_INTEGER}"),
    (f"{_A}.yes_no_answer", True, "got True, expected one of"),
    (
        f"{_A}.yes_no_answer",
        "MAYBE",
        r"got 'MAYBE', expected one of \['NO', 'NONE', 'YES'\]",
    ),
    ("annotations[1].yes_no_answer", "yes", "got 'yes', expected one of"),
    # The page has 17 tokens.
    *(
        (
            place,
            _span(*span),
            f"got start_token {span[0]} and end_token {span[1]}, "
            "expected 0 <= start_token < end_token <= .* here 17",
        )
        for place, spans in (
            (f"{_C}[1]", ((3, 18), (3, 3), (-2, 9), (-1, -1))),
            (_LONG, ((17, 18), (9, 3), (-3, -2))),
            (f"{_SHORT}[1]", ((3, 18), (9, 3), (-1, 3))),
        )
        for span in spans
    ),
    (_LONG, _span(-1, 9), "expected -1 for both"),
    (_LONG, _span(3, -1), "expected -1 for both"),
]
_T = "document_tokens"
_ORIGINAL_NQ = [
    (_T, REMOVE, 'missing.* or "document_text"'),
    (_T, "a b", f"got 'a b', {_OBJECTS}"),
    (_T, [], "it has no text"),
    (_T, [{"token": " ", "html_token": True}], "has no text"),
    *((f"{_T}[4]", x, _OBJECT) for x in ("Brno", ["Brno"], None, 4)),
    (f"{_T}[16].token", REMOVE, "missing"),
    (f"{_T}[16].html_token", REMOVE, "missing"),
    (f"{_T}[4].token", 1984, f"got 1984, {_STRING}"),
    (f"{_T}[4].html_token", 0, "got 0, expected true or false"),
]
_SIMPLIFIED_NQ = [
    ("document_text", REMOVE, 'missing.* or "document_text"', _T),
    ("document_text", ["a", "b"], _STRING),
    ("document_text", "", "it has no text"),
    ("document_text", "  ", "it has no text"),
]
_OPENKP = [
    *((x, REMOVE, "missing") for x in ("url", "text", "VDOM")),
    ("url", 4, f"got 4, {_STRING}"),
    ("url", " ", "it is empty"),
    ("text", ["a"], _STRING),
    ("VDOM", [], _STRING),
    ("VDOM", "[", "got '\\[', expected a string of JSON"),
    ("VDOM", "{}", "got {}, expected a list of nodes"),
    ("KeyPhrases", "a b", "expected a list of lists of strings or null"),
    ("KeyPhrases[1]", "a b", "expected a list of strings"),
    ("KeyPhrases[1][0]", 5, _STRING),
]
_M = "mentions[1]"
_PRETRAINING = [
    ("id", "", "it is empty"),
    ("id", 3, _STRING),
    ("id", "1", "an earlier record has the same"),
    ("text", REMOVE, "missing"),
    ("text", [], _STRING),
    ("text", " \n", "it is empty"),
    ("mentions", {}, _OBJECTS),
    (_M, 3, _OBJECT),
    (f"{_M}.start", REMOVE, "missing"),
    (f"{_M}.start", "0", _INTEGER),
    (f"{_M}.entity", 7, "a string or null"),
    (_M, {"start": 3, "end": 3}, "from 3 to 3.*end <= 28, the", f"{_M}.end"),
    (_M, {"start": 2, "end": 29}, "from 2 to 29", f"{_M}.end"),
    (_M, {"start": -1, "end": 2}, "from -1 to 2", f"{_M}.start"),
]
_TRIVIAQA = [
    *((x, REMOVE, "missing") for x in ("QuestionId", "Question")),
    ("QuestionId", 4, f"got 4, {_STRING}"),
    ("QuestionId", " ", "it is empty"),
    ("QuestionId", "1", "an earlier record has the same"),
    ("Question", " ", "it is empty"),
    ("EntityPages", {}, _OBJECTS),
    ("EntityPages[0].Filename", REMOVE, "missing"),
    ("SearchResults[0]", "4/4_2.txt", _OBJECT),
    ("Answer", "Brno", "expected a JSON object or null"),
    ("Answer.Value", 5, _STRING),
    ("Answer.Aliases[1]", 5, _STRING),
    ("Answer.NormalizedAliases", REMOVE, "missing"),
]
# Errors in users' own rows.
_ANY_ROW = [
    ("id", True, "got True, expected a string or a number"),
    ("id", " ", "it is empty"),
    ("id", "1", "an earlier record has the same"),
    ("id", 1, "an earlier record has the same"),
]
_CLASSIFY = [
    (
        "text",
        REMOVE,
        "missing, as are 'document', .*, expected a string, a list",
    ),
    *(("text", x, "it has no text") for x in ("", " \n\n", [], [" "])),
    ("label", {}, "expected a label: a string"),
]
_SELECT = [
    ("paragraphs[1]", "a b", "got 'a b', expected a list of strings, like"),
    ("paragraphs[0][1]", 5, _STRING),
    ("selected[0]", [2, 0], "got 2, expected the index of one of the 2 par"),
]
_ANSWER = [
    ("question", REMOVE, "missing"),
    ("question", " ", "it is empty"),
    ("answers[0].text", True, _STRING),
    ("answers[0].answer_start", "here", _INTEGER),
]
_CASES = [
    (name, *case)
    for name, cases in (
        ("wikihop", _WIKIHOP),
        ("hotpotqa", _HOTPOTQA),
        ("nq", _ANY_NQ + _ORIGINAL_NQ),
        ("nq_simplified", _ANY_NQ + _SIMPLIFIED_NQ),
        ("openkp", _OPENKP),
        ("pretraining", _PRETRAINING),
        ("triviaqa", _TRIVIAQA),
        ("classify", _ANY_ROW + _CLASSIFY),
        ("select", _ANY_ROW + _SELECT),
        ("answer", _ANY_ROW + _ANSWER),
    )
    for case in cases
]
# Fields that records need for training and evaluation.
_PREDICT = ".*`split=predict`"
_NEEDED = [
    ("wikihop", "answer", REMOVE, f"it is missing{_PREDICT}"),
    ("wikihop", "answer", "france", "got 'france', expected one of its 3 cand"),
    ("wikihop", "candidates", [], "it is empty.*at least one"),
    (
        "openkp",
        "KeyPhrases",
        [[], ["", " "]],
        f"it is empty.*'SPLIT'{_PREDICT}",
    ),
    *(
        (
            "hotpotqa",
            "supporting_facts",
            value,
            "it is .*'SPLIT'.*`task=read_twice_hotpotqa`",
        )
        for value in (REMOVE, None, [])
    ),
    *(
        (name, field, value, f"it is missing.*'SPLIT'{_PREDICT}")
        for name, field in (
            ("classify", "label"),
            ("select", "selected"),
            ("answer", "answers"),
        )
        for value in (REMOVE, None)
    ),
    *(
        (name, field, value, f"it is {problem}.*'SPLIT'{_PREDICT}")
        for name, field, empty in (
            ("hotpotqa", "answer", " "),
            ("openkp", "KeyPhrases", []),
            ("nq", "annotations", []),
            ("nq_simplified", "annotations", []),
        )
        for value, problem in (
            (REMOVE, "missing"),
            (None, "missing"),
            (empty, "empty"),
        )
    ),
]
# Records without text are skipped in training, but predicted and evaluated.
_NO_TEXT = [
    ("wikihop", "supports", [], "none of its 0"),
    ("wikihop", "supports", ["", " "], "none of its 2"),
    ("hotpotqa", "context", [], "none of its 0 parag"),
    ("hotpotqa", "context", [["a", ["", " "]], ["b", []]], "none of its 2 p"),
    ("openkp", "VDOM", "[]", "none of its 0 nodes"),
]


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
    def _setup(self, name):
        """Selects a format's record, id and text field; returns its module."""
        module, self.good, self.id_field, self.text_field = _FORMATS[name]
        self.is_array = name in ("wikihop", "hotpotqa", "triviaqa")
        self.key = "Data" if name == "triviaqa" else None
        return module

    def _record(self, number):
        is_integer = self.id_field == "example_id"
        value = number if is_integer else str(number)
        return {**self.good, self.id_field: value}

    def _write(self, values, change=bytes):
        text = (
            json.dumps({self.key: values} if self.key else values)
            if self.is_array
            else "".join(json.dumps(value) + "\n" for value in values)
        )
        root = self.get_temp_dir()
        samples.write_evidence(root)
        os.makedirs(os.path.join(root, "qa"), exist_ok=True)
        path = os.path.join(root, "qa", "data")
        with open(path, "wb") as stream:
            stream.write(change(text.encode()))
        return path

    @parameterized.parameters(*_CASES)
    def test_bad_record(self, name, place, value, message, field=None):
        module = self._setup(name)
        bad = changed(self.good, place, value)
        path = self._write([self._record(1), bad, self._record(2)])
        where = path if self.is_array else f"{path}, line 2"
        for split in module.FORMAT.splits:
            reader = module.FORMAT.read(path, split)
            self.assertEqual("1", next(reader).id)
            with self.assertRaisesRegex(RecordError, message) as caught:
                next(reader)
            error = str(caught.exception)
            self.assertStartsWith(error, f"{where}, record 1")
            self.assertIn(f"field '{field or place}':", error)
            self.assertIn("`skip_bad_records`", error)
            if place != self.id_field:
                self.assertIn(f"(id '{self.good[self.id_field]}')", error)
        bad_records = BadRecords(skip=True)
        read = list(module.FORMAT.read(path, "train", bad_records))
        self.assertEqual(["1", "2"], [record.id for record in read])
        self.assertEqual([0, 2], [record.index for record in read])
        self.assertEqual(1, bad_records.total)

    @parameterized.parameters(*_NEEDED)
    def test_answers_are_needed(self, name, field, value, message):
        module = self._setup(name)
        path = self._write([changed(self.good, field, value)])
        for split in module.FORMAT.splits:
            reader = module.FORMAT.read(path, split)
            if split == "predict":
                self.assertLen(list(reader), 1)
                continue
            with self.assertRaisesRegex(
                RecordError, f"'{field}': {message.replace('SPLIT', split)}"
            ):
                next(reader)

    @parameterized.parameters(*_NO_TEXT)
    def test_text_is_needed_for_training(self, name, field, value, message):
        module = self._setup(name)
        path = self._write([changed(self.good, field, value)])
        for split in module.FORMAT.splits:
            reader = module.FORMAT.read(path, split)
            if split != "train":
                self.assertLen(list(reader), 1)
                continue
            with self.assertRaisesRegex(RecordError, f"'{field}': {message}"):
                next(reader)

    @parameterized.parameters(*_FORMATS)
    def test_not_an_object(self, name):
        module = self._setup(name)
        with self.assertRaisesRegex(RecordError, "got 5, expected a .*{"):
            list(module.FORMAT.read(self._write([self.good, 5])))

    @parameterized.parameters(*_FORMATS)
    def test_only_records_with_invalid_utf8_are_skipped(self, name):
        module = self._setup(name)
        path = self._write(
            [self._record(i) for i in range(3)],
            lambda content: content.replace(b"Moravia", b"M\xe4hren", 1),
        )
        with self.assertRaisesRegex(
            RecordError, f"id '0'.*'{self.text_field}'.*not UTF-8"
        ):
            next(module.FORMAT.read(path))
        bad_records = BadRecords(skip=True)
        read = module.FORMAT.read(path, "train", bad_records)
        self.assertEqual(["1", "2"], [record.id for record in read])
        self.assertEqual({"invalid UTF-8": 1}, dict(bad_records.counts))

    def test_bad_records_are_freed(self):
        """No reference cycle keeps bad records in memory."""
        module = self._setup("wikihop")
        path = self._write([5, self._record(1)])
        part = module.FORMAT.read_part([path], files.Part(path), "train")
        self.addCleanup(gc.enable)
        gc.disable()
        error = next(part).error
        self.assertIsInstance(error, RecordError)
        part.close()
        freed = weakref.ref(error)
        del error
        self.assertIsNone(freed())

    @parameterized.product(name=list(_FORMATS), skip=[False, True])
    def test_truncated_file(self, name, skip):
        """A truncated file raises an error even if bad records are skipped."""
        module = self._setup(name)
        path = self._write(
            [self._record(1), self._record(2)], lambda content: content[:-40]
        )
        reader = module.FORMAT.read(path, bad_records=BadRecords(skip))
        self.assertEqual("1", next(reader).id)
        with self.assertRaisesRegex(UserError, "after 1 whole records"):
            next(reader)

    @parameterized.parameters(*_FORMATS)
    def test_gzip_and_position(self, name):
        module = self._setup(name)
        path = self._write([self._record(1), self._record(2)], gzip.compress)
        positions = []
        read = list(module.FORMAT.read(path, on_position=positions.append))
        self.assertEqual(["1", "2"], [record.id for record in read])
        self.assertEqual([0, 1], [record.index for record in read])
        self.assertEqual([os.path.getsize(path)] * 2, positions)

    def test_several_files(self):
        """Reads several files as one; errors name the right file."""
        module = self._setup("wikihop")
        paths, values = [], [self._record(i) for i in range(4)]
        for name, content in (("a", values[:2]), ("b", [values[2], values[0]])):
            path = self._write(content)
            paths.append(os.path.join(os.path.dirname(path), f"data.{name}"))
            os.rename(path, paths[-1])
        positions, bad_records = [], BadRecords(skip=True)
        read = list(
            module.FORMAT.read(
                paths[0][:-1] + "*", None, bad_records, positions.append
            )
        )
        self.assertEqual(
            [("0", paths[0], 0), ("1", paths[0], 1), ("2", paths[1], 0)],
            [(record.id, *record.source[:2]) for record in read],
        )
        (error,) = bad_records.examples
        self.assertStartsWith(error, f"{paths[1]}, record 1 (id '0'), field")
        first, second = map(os.path.getsize, paths)
        self.assertEqual([first] * 2 + [first + second] * 2, positions)

    @parameterized.parameters(*_FORMATS)
    def test_unknown_split(self, name):
        module = self._setup(name)
        with self.assertRaisesRegex(ValueError, "'test', expected one of"):
            next(module.FORMAT.read(self._write([]), "test"))


if __name__ == "__main__":
    tf.test.main()
