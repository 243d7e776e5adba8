import copy
import gzip
import json
import os
import re
import tempfile
import time

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.errors import BadRecords
from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.errors import UserError
from etcmodel.tasks.nq import records
from etcmodel.tasks.nq.records import Annotation
from etcmodel.tasks.nq.records import Candidate
from etcmodel.tasks.nq.records import NQRecord
from etcmodel.testing import real_data_path

_TOKENS = (
    ["<H1>", "Brno", "</H1>", "<P>", "Brno", "is", "a", "city", "</P>"]
    + ['<Table class="x y">', "<Tr>", "<Td>", "Moravia", "<", "</Td>"]
    + ["</Tr>", "</Table>"]
)
_IS_HTML = (
    [True, False, True, True, False, False, False, False, True]
    + [True, True, True, False, False, True]
    + [True, True]
)
_REMOVE = object()


def _span(start, end, **more):
    return {"start_token": start, "end_token": end, **more}


def original_record(**changes):
    """A small record in the original format."""
    record = {
        "annotations": [
            {
                "annotation_id": 13676402902866580638,
                "long_answer": _span(3, 9, candidate_index=0, start_byte=1),
                "short_answers": [_span(6, 8, start_byte=1), _span(4, 5)],
                "yes_no_answer": "NONE",
            },
            {
                "annotation_id": 7,
                "long_answer": _span(-1, -1, candidate_index=-1),
                "short_answers": [],
                "yes_no_answer": "YES",
            },
        ],
        "document_html": "<html>",
        "document_title": "Brno",
        "document_tokens": [
            {"token": token, "html_token": html, "start_byte": 1, "end_byte": 2}
            for token, html in zip(_TOKENS, _IS_HTML, strict=True)
        ],
        "document_url": "https://en.wikipedia.org/wiki/Brno",
        "example_id": -2543388002166163252,
        "long_answer_candidates": [
            _span(3, 9, top_level=True, start_byte=1, end_byte=2),
            _span(9, 17, top_level=True),
            _span(10, 16, top_level=False),
        ],
        "question_text": "what is brno",
        "question_tokens": ["what", "is", "brno"],
    }
    record.update(changes)
    return record


def to_simplified(record):
    """The record as in `simplified-nq-train.jsonl`."""
    names = (
        "annotations",
        "document_url",
        "example_id",
        "long_answer_candidates",
        "question_text",
    )
    simplified = {name: record[name] for name in names}
    simplified["document_text"] = " ".join(
        token["token"].replace(" ", "_") for token in record["document_tokens"]
    )
    return simplified


def simplified_record(**changes):
    return {**to_simplified(original_record()), **changes}


def _changed(record, place, value):
    """A copy of a record with another value at a place such as `a[0].b`."""
    record = copy.deepcopy(record)
    *keys, last = [
        int(key) if key.isdigit() else key for key in re.findall(r"\w+", place)
    ]
    parent = record
    for key in keys:
        parent = parent[key]
    if value is _REMOVE:
        del parent[last]
    else:
        parent[last] = value
    return record


_INTEGER = "expected a whole number"
_OBJECT = "expected a JSON object"
_OBJECTS = "expected a list of JSON objects"
_STRING = "expected a string"
_C = "long_answer_candidates"
_A = "annotations[0]"
_LONG = "annotations[0].long_answer"
_SHORT = "annotations[0].short_answers"
# Place, wrong value there, message.
_WRONG = [
    *(
        (place, _REMOVE, "it is missing")
        for place in (
            *("example_id", "question_text", _C),
            *(f"{_C}[1].start_token", f"{_C}[1].end_token"),
            *(f"{_C}[1].top_level", _LONG, _SHORT, f"{_A}.yes_no_answer"),
            *(f"{_LONG}.start_token", f"{_LONG}.end_token"),
            *(f"{_SHORT}[1].start_token", f"{_SHORT}[1].end_token"),
        )
    ),
    ("example_id", "12", f"got '12', {_INTEGER}"),
    ("example_id", True, f"got True, {_INTEGER}"),
    ("example_id", 1.5, f"got 1.5, {_INTEGER}"),
    ("example_id", 1, "a record before it has the same"),
    ("question_text", ["a"], _STRING),
    ("question_text", " ", "it is empty"),
    (_C, {}, f"got {{}}, {_OBJECTS}"),
    (f"{_C}[1]", 4, f"got 4, {_OBJECT}"),
    (f"{_C}[2].start_token", "9", f"got '9', {_INTEGER}"),
    (f"{_C}[2].start_token", False, f"got False, {_INTEGER}"),
    (f"{_C}[2].end_token", 9.5, f"got 9.5, {_INTEGER}"),
    (f"{_C}[2].top_level", 1, "got 1, expected true or false"),
    ("annotations", "NONE", f"got 'NONE', {_OBJECTS}"),
    ("annotations", None, f"got None, {_OBJECTS}"),
    ("annotations[1]", [], _OBJECT),
    (_LONG, [3, 9], _OBJECT),
    (f"{_LONG}.start_token", None, f"got None, {_INTEGER}"),
    (f"{_LONG}.end_token", True, f"got True, {_INTEGER}"),
    (_SHORT, {}, _OBJECTS),
    (f"{_SHORT}[1]", 5, _OBJECT),
    (f"{_SHORT}[0].start_token", [], _INTEGER),
    (f"{_SHORT}[1].end_token", "5", f"got '5', {_INTEGER}"),
    (f"{_A}.yes_no_answer", True, f"got True, {_STRING}"),
    (
        f"{_A}.yes_no_answer",
        "MAYBE",
        r"got 'MAYBE', expected one of \['NONE', 'YES', 'NO'\]",
    ),
    ("annotations[1].yes_no_answer", "yes", "got 'yes', expected one of"),
]
_WRONG_ORIGINAL = [
    ("document_tokens", _REMOVE, 'missing.* or "document_text"'),
    ("document_tokens", "a b", f"got 'a b', {_OBJECTS}"),
    ("document_tokens", [], "it has no text"),
    ("document_tokens", [{"token": " ", "html_token": True}], "has no text"),
    ("document_tokens[4]", "Brno", _OBJECT),
    ("document_tokens[4]", ["Brno"], _OBJECT),
    ("document_tokens[4]", None, _OBJECT),
    ("document_tokens[4]", 4, _OBJECT),
    ("document_tokens[16].token", _REMOVE, "missing"),
    ("document_tokens[16].html_token", _REMOVE, "missing"),
    ("document_tokens[4].token", 1984, f"got 1984, {_STRING}"),
    ("document_tokens[4].html_token", 0, "got 0, expected true or false"),
]
_WRONG_SIMPLIFIED = [
    ("document_text", ["a", "b"], _STRING),
    ("document_text", "", "it has no text"),
    ("document_text", "  ", "it has no text"),
]
# Object, its start and end; the document has 17 tokens.
_WRONG_SPANS = [
    *(
        (place, *span, "expected 0 <= start_token < end_token <= .* here 17")
        for place in (f"{_C}[1]", _LONG, f"{_SHORT}[1]")
        for span in ((3, 18), (17, 18), (3, 3), (9, 3), (-2, 9), (-3, -2))
    ),
    *(
        (place, *span, "expected 0 <= start_token < end_token <= .* here 17")
        for place in (f"{_C}[1]", f"{_SHORT}[1]")
        for span in ((-1, -1), (-1, 3))
    ),
    (_LONG, -1, 9, "expected both to be -1"),
    (_LONG, 3, -1, "expected both to be -1"),
]


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, content) -> str:
        path = os.path.join(
            tempfile.mkdtemp(dir=self.get_temp_dir()), "data.jsonl"
        )
        if not isinstance(content, bytes):
            content = "".join(json.dumps(value) + "\n" for value in content)
            content = content.encode("utf-8")
        with open(path, "wb") as stream:
            stream.write(content)
        return path

    def _read(self, content, *args):
        return list(records.read_records(self._write(content), *args))

    def _expected(self, tokens):
        return NQRecord(
            id="-2543388002166163252",
            question="what is brno",
            tokens=tuple(tokens),
            is_html=tuple(_IS_HTML),
            candidates=(
                Candidate(3, 9, True),
                Candidate(9, 17, True),
                Candidate(10, 16, False),
            ),
            annotations=(
                Annotation(3, 9, ((6, 8), (4, 5)), "none"),
                Annotation(-1, -1, (), "yes"),
            ),
            index=0,
        )

    @parameterized.parameters(*records.SPLITS)
    def test_reads_the_original_format(self, split):
        (record,) = self._read([original_record()], split)
        self.assertEqual(self._expected(_TOKENS), record)
        self.assertEqual(
            (Candidate(3, 9, True), Candidate(9, 17, True)),
            record.top_level_candidates,
        )

    @parameterized.parameters(*records.SPLITS)
    def test_reads_the_simplified_format(self, split):
        (record,) = self._read([simplified_record()], split)
        tokens = [
            '<Table_class="x_y">' if " " in token else token
            for token in _TOKENS
        ]
        self.assertEqual(self._expected(tokens), record)

    def test_formats_are_told_apart_by_record(self):
        content = [
            simplified_record(example_id=1),
            original_record(example_id=2),
            simplified_record(example_id=3),
        ]
        read = self._read(content)
        self.assertEqual(["1", "2", "3"], [record.id for record in read])
        self.assertEqual([0, 1, 2], [record.index for record in read])
        self.assertLen({record.is_html for record in read}, 1)

    def test_simplified_tokens_are_split_at_single_spaces(self):
        text = "<P> a\u00a0b  c\u2003d\ne < > <> <x > 1<2 </P>"
        (record,) = self._read(
            [
                simplified_record(
                    document_text=text,
                    long_answer_candidates=[],
                    annotations=[],
                )
            ],
            "predict",
        )
        self.assertEqual(
            ("<P>", "a\u00a0b", "", "c\u2003d\ne", "<", ">", "<>", "<x", ">")
            + ("1<2", "</P>"),
            record.tokens,
        )
        self.assertEqual(
            (True, False, False, False, False, False, True, False, False)
            + (False, True),
            record.is_html,
        )

    def test_unused_fields_may_be_absent(self):
        value = original_record(
            document_tokens=[
                {"token": token, "html_token": html}
                for token, html in zip(_TOKENS, _IS_HTML, strict=True)
            ]
        )
        for field in ("document_html", "document_title", "document_url"):
            del value[field]
        for annotation in value["annotations"]:
            del annotation["annotation_id"]
            del annotation["long_answer"]["candidate_index"]
        self.assertEqual([self._expected(_TOKENS)], self._read([value]))

    def test_yes_and_no(self):
        for name, expected in (("YES", "yes"), ("NO", "no"), ("NONE", "none")):
            value = _changed(original_record(), f"{_A}.yes_no_answer", name)
            (record,) = self._read([value])
            self.assertEqual(expected, record.annotations[0].yes_no)

    def test_predict_needs_no_annotations(self):
        value = simplified_record(example_id=1)
        del value["annotations"]
        content = [value, simplified_record(example_id=2, annotations=[])]
        self.assertEqual(
            [None, ()],
            [record.annotations for record in self._read(content, "predict")],
        )

    @parameterized.product(
        split=["train", "dev"],
        value=[original_record(), simplified_record()],
        annotations=[(_REMOVE, "missing"), ([], "empty")],
    )
    def test_needs_annotations(self, split, value, annotations):
        value = _changed(value, "annotations", annotations[0])
        with self.assertRaisesRegex(
            RecordError,
            f"'annotations': it is {annotations[1]}.*'{split}'"
            ".*--split=predict",
        ):
            self._read([value], split)

    def _check_bad(self, good, bad, place, message):
        path = self._write([{**good, "example_id": 1}, bad])
        for split in records.SPLITS:
            reader = records.read_records(path, split)
            self.assertEqual("1", next(reader).id)
            with self.assertRaisesRegex(RecordError, message) as caught:
                next(reader)
            error = str(caught.exception)
            self.assertStartsWith(error, f"{path}, record 1")
            self.assertIn(f"field '{place}':", error)
            self.assertIn("--skip_bad_records", error)
            if place != "example_id":
                self.assertIn(f"(id '{good['example_id']}')", error)

        bad_records = BadRecords(skip=True)
        content = [{**good, "example_id": 1}, bad, {**good, "example_id": 2}]
        read = self._read(content, "train", bad_records)
        self.assertEqual(["1", "2"], [record.id for record in read])
        self.assertEqual([0, 2], [record.index for record in read])
        self.assertEqual(1, bad_records.total)

    @parameterized.parameters(
        *[(original_record(), *case) for case in _WRONG + _WRONG_ORIGINAL],
        *[(simplified_record(), *case) for case in _WRONG + _WRONG_SIMPLIFIED],
    )
    def test_wrong_value(self, good, place, value, message):
        self._check_bad(good, _changed(good, place, value), place, message)

    @parameterized.parameters(*_WRONG_SPANS)
    def test_wrong_span(self, place, start, end, message):
        for good in (original_record(), simplified_record()):
            bad = _changed(good, f"{place}.start_token", start)
            bad = _changed(bad, f"{place}.end_token", end)
            self._check_bad(
                good,
                bad,
                place,
                f"got start_token {start} and end_token {end}, {message}",
            )

    def test_neither_format(self):
        good = simplified_record()
        self._check_bad(
            good,
            _changed(good, "document_text", _REMOVE),
            "document_tokens",
            'missing.* or "document_text"',
        )

    def test_not_an_object(self):
        with self.assertRaisesRegex(
            RecordError, "record 1: .*expected a Natural Questions record"
        ):
            self._read([original_record(), 5])

    def test_invalid_utf8_is_skipped_alone(self):
        content = (
            "\n".join(
                json.dumps(original_record(example_id=i)) for i in range(3)
            )
            .encode()
            .replace(b"Moravia", b"M\xe4hren", 1)
        )
        with self.assertRaisesRegex(
            RecordError, "id '0'.*'document_tokens'.*not UTF-8"
        ):
            self._read(content)
        bad_records = BadRecords(skip=True)
        read = self._read(content, "train", bad_records)
        self.assertEqual(["1", "2"], [record.id for record in read])
        self.assertEqual({"invalid UTF-8": 1}, dict(bad_records.counts))

    @parameterized.parameters(False, True)
    def test_truncated_gzip(self, skip):
        # Random text cannot be compressed: the cut is in the third record.
        content = [original_record(example_id=i) for i in range(3)]
        content[2]["document_html"] = os.urandom(50_000).hex()
        text = "\n".join(map(json.dumps, content)).encode()
        path = self._write(gzip.compress(text)[:-20_000])
        reader = records.read_records(path, bad_records=BadRecords(skip))
        self.assertEqual("0", next(reader).id)
        self.assertEqual("1", next(reader).id)
        with self.assertRaisesRegex(
            UserError, "gzip data are cut off or damaged, after 2 whole records"
        ):
            next(reader)

    def test_truncated_file(self):
        content = json.dumps(original_record()).encode()
        with self.assertRaisesRegex(
            UserError, "line 2: the JSON ends too early, after 1 whole records"
        ):
            self._read(content + b"\n" + content[:-40])

    def test_json_array(self):
        with self.assertRaisesRegex(UserError, "holds a JSON array"):
            self._read(json.dumps([original_record()]).encode())

    @parameterized.named_parameters(("original", False), ("simplified", True))
    def test_long_pages(self, simplified):
        num_tokens, num_candidates = 150_000, 500
        size = num_tokens // num_candidates
        value = original_record(
            document_tokens=[
                {
                    "token": "<P>" if i % size == 0 else f"word{i % 9000}",
                    "html_token": i % size == 0,
                    "start_byte": 8 * i,
                    "end_byte": 8 * i + 7,
                }
                for i in range(num_tokens)
            ],
            long_answer_candidates=[
                _span(i * size, (i + 1) * size, top_level=i % 5 == 0)
                for i in range(num_candidates)
            ],
        )
        path = self._write([to_simplified(value) if simplified else value])
        start = time.perf_counter()
        (record,) = records.read_records(path)
        seconds = time.perf_counter() - start
        self.assertLen(record.tokens, num_tokens)
        self.assertEqual("word8999", record.tokens[143_999])
        self.assertEqual(num_candidates, sum(record.is_html))
        self.assertLen(record.candidates, num_candidates)
        self.assertLen(record.top_level_candidates, 100)
        self.assertEqual(
            Candidate(149_700, 150_000, False), record.candidates[-1]
        )
        # Words that come again are the same object.
        self.assertIs(record.tokens[1], record.tokens[9001])
        # Much less on an idle machine; a slow check would take far longer.
        self.assertLess(seconds, 5.0)

    def test_wrong_token_at_the_end_of_a_long_page(self):
        tokens = [{"token": "a", "html_token": False}] * 149_999
        value = original_record(document_tokens=[*tokens, {"token": "a"}])
        with self.assertRaisesRegex(
            RecordError, r"document_tokens\[149999\].html_token': it is missing"
        ):
            self._read([value])

    def test_real_pages(self):
        # Numbers of tokens, candidates and top-level candidates; the answers.
        expected = {
            "4549465242785278785": (
                (7259, 136, 23),
                Annotation(2114, 3538, ((3521, 3525),), "none"),
                "when is the last episode of season 8 of the walking dead",
            ),
            "-2543388002166163252": (
                (17723, 252, 61),
                Annotation(809, 965, ((814, 838),), "none"),
                "in greek mythology who was the goddess of spring growth",
            ),
            "5985355041383167183": (
                (1927, 18, 13),
                Annotation(-1, -1, (), "none"),
                "benefits of colonial life for single celled organisms",
            ),
        }
        ids = []
        for name in ("nq/nq-train-00.jsonl.gz", "nq/nq-train-01.jsonl.gz"):
            path = real_data_path(name)
            positions = []
            read = list(
                records.read_records(path, on_position=positions.append)
            )
            self.assertEqual(os.path.getsize(path), positions[-1])
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                values = [json.loads(line) for line in stream]
            simplified = self._read([to_simplified(value) for value in values])
            for record, value, simple in zip(
                read, values, simplified, strict=True
            ):
                ids.append(record.id)
                counts, annotation, question = expected[record.id]
                self.assertEqual(
                    counts,
                    (
                        len(record.tokens),
                        len(record.candidates),
                        len(record.top_level_candidates),
                    ),
                )
                self.assertEqual((annotation,), record.annotations)
                self.assertEqual(question, record.question)
                for token, html, raw in zip(
                    record.tokens,
                    record.is_html,
                    value["document_tokens"],
                    strict=True,
                ):
                    self.assertEqual(raw["token"], token)
                    self.assertEqual(raw["html_token"], html)
                # Both formats are the same but for spaces within tags.
                self.assertEqual(record.is_html, simple.is_html)
                self.assertEqual(record.candidates, simple.candidates)
                self.assertEqual(record.annotations, simple.annotations)
                self.assertEqual(
                    [token.replace(" ", "_") for token in record.tokens],
                    list(simple.tokens),
                )
        self.assertEqual(list(expected), ids)

    def test_answers_of_real_pages(self):
        path = real_data_path("nq/nq-train-00.jsonl.gz")
        first, second = records.read_records(path, "dev")
        ((start, end),) = first.annotations[0].short_answers
        self.assertEqual("March 18 , 2018", " ".join(first.tokens[start:end]))
        ((start, end),) = second.annotations[0].short_answers
        self.assertIn("Persephone", second.tokens[:40])
        self.assertEqual(24, end - start)

    def test_unknown_split(self):
        with self.assertRaisesRegex(ValueError, "split"):
            self._read([], "test")


if __name__ == "__main__":
    tf.test.main()
