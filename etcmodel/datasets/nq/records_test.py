"""Tests of NQ's records; `readers/records_test.py` tests errors."""

import gzip
import json
import os

import msgspec
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.nq import records
from etcmodel.datasets.nq.records import Annotation
from etcmodel.datasets.nq.records import Candidate
from etcmodel.datasets.nq.records import NQRecord
from testing import samples
from testing.helpers import real_data_path
from testing.helpers import write_file


def simplified_record(**changes):
    return {**samples.simplified_nq(samples.nq()), **changes}


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
    def _read(self, content, *args):
        return [*records.FORMAT.read(write_file(self, iter(content)), *args)]

    def _expected(self, tokens, source):
        return NQRecord(
            id="-2543388002166163252",
            question="what is brno",
            tokens=tuple(tokens),
            is_html=tuple(samples.NQ_IS_HTML),
            candidates=(
                Candidate(3, 9, True),
                Candidate(9, 17, True),
                Candidate(10, 16, False),
            ),
            annotations=(
                Annotation(3, 9, ((6, 8), (4, 5)), "none"),
                Annotation(-1, -1, (), "yes"),
                Annotation(9, 17, (), "no"),
            ),
            source=source,
        )

    @parameterized.parameters(*records.FORMAT.splits)
    def test_reads_both_formats(self, split):
        (record,) = self._read([samples.nq()], split)
        self.assertEqual(
            self._expected(samples.NQ_TOKENS, record.source), record
        )
        self.assertEqual(record.candidates[:2], record.top_level_candidates)
        # Repeated words are the same object.
        self.assertIs(record.tokens[1], record.tokens[4])
        (record,) = self._read([simplified_record()], split)
        tokens = [
            '<Table_class="x_y">' if " " in token else token
            for token in samples.NQ_TOKENS
        ]
        self.assertEqual(self._expected(tokens, record.source), record)

    def test_formats_are_told_apart_by_record(self):
        content = [
            simplified_record(example_id=1),
            samples.nq(example_id=2),
            simplified_record(example_id=3),
        ]
        read = self._read(content)
        self.assertEqual(["1", "2", "3"], [record.id for record in read])
        self.assertLen({record.is_html for record in read}, 1)

    def test_simplified_tokens_are_split_at_single_spaces(self):
        text = "<P> a\u00a0b  c\u2003d\ne < > <> <x > 1<2 </P>"
        value = simplified_record(document_text=text, annotations=[])
        (record,) = self._read(
            [{**value, "long_answer_candidates": []}], "predict"
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
        unused = {"start_byte", "end_byte", "annotation_id", "candidate_index"}
        unused |= {"document_html", "document_title", "document_url"}

        def used(values):
            return {x: y for x, y in values.items() if x not in unused}

        text = json.dumps(samples.nq())
        value = json.loads(text, object_hook=used)
        self.assertLess(len(json.dumps(value)), len(text) - 500)
        (record,) = self._read([value])
        self.assertEqual(
            self._expected(samples.NQ_TOKENS, record.source), record
        )

    def test_ids_may_be_strings_and_answers_absent(self):
        """Kaggle's test file has string ids and lacks answers."""
        number = "-1011141123527297803"
        value = simplified_record(example_id=number)
        del value["annotations"]
        named = simplified_record(example_id="page 7", annotations=[])
        read = self._read([value, named], "predict")
        self.assertEqual(
            [(number, None), ("page 7", ())],
            [(record.id, record.annotations) for record in read],
        )

    def test_real_pages(self):
        # The number of tokens, the number of candidates, and the answer.
        expected = [
            (7259, 136, Annotation(2114, 3538, ((3521, 3525),), "none")),
            (17723, 252, Annotation(809, 965, ((814, 838),), "none")),
            (1927, 18, Annotation(-1, -1, (), "none")),
        ]
        found = []
        for name in ("nq/nq-train-00.jsonl.gz", "nq/nq-train-01.jsonl.gz"):
            path = real_data_path(name)
            positions = []
            read = list(records.FORMAT.read(path, on_position=positions.append))
            self.assertEqual(os.path.getsize(path), positions[-1])
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                values = [json.loads(line) for line in stream]
            simplified = self._read(map(samples.simplified_nq, values))
            for record, value, simple in zip(
                read, values, simplified, strict=True
            ):
                sizes = len(record.tokens), len(record.candidates)
                found.append((*sizes, *record.annotations))
                self.assertEqual(value["question_text"], record.question)
                raw = value["document_tokens"]
                self.assertEqual(
                    [(x["token"], x["html_token"]) for x in raw],
                    [*zip(record.tokens, record.is_html, strict=True)],
                )
                # The formats differ only in spaces within tags.
                tokens = (x.replace(" ", "_") for x in record.tokens)
                same = msgspec.structs.replace(record, tokens=tuple(tokens))
                simple = msgspec.structs.replace(simple, source=record.source)
                self.assertEqual(same, simple)
        self.assertEqual(expected, found)


if __name__ == "__main__":
    tf.test.main()
