import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.documents import span_decoding as decoding
from testing import span_answers


def _decode(logits, features, context, text, threshold, longest=30, **shape):
    """Selects candidates of a batch and decodes them to answers."""
    chosen = decoding.select_candidates(logits, features, context, longest)
    return decoding.decode_answers(chosen, **text, threshold=threshold, **shape)


def _position(result, i=0):
    """Returns paragraph, unit, start and end of record i's answer."""
    names = ("paragraph", "unit", "start", "end")
    return [int(result[f"answer_{name}"][i]) for name in names]


class ReferenceTest(tf.test.TestCase, parameterized.TestCase):
    """Compares random batches with a reference that tries every span."""

    @parameterized.product(
        encoding=("span", "bio"),
        max_answer_length=(1, 2, 99),
        seed=(1, 2),
    )
    def test_answers(self, encoding, max_answer_length, seed):
        records, logits = span_answers.random_batch(seed, encoding)
        for threshold in (0.0, 0.3, 0.5, 0.8, 1.0, None):
            result = _decode(
                logits,
                *span_answers.inputs_of(records),
                threshold,
                max_answer_length,
            )
            for i, record in enumerate(records):
                kind, text, probability = span_answers.reference_answer(
                    logits, i, record, threshold, max_answer_length
                )
                self.assertEqual(kind, result["answer_type"][i])
                self.assertAllClose(
                    probability, result["answer_probability"][i], rtol=1e-4
                )
                self.assertEqual(text, result["answer"][i].numpy())
                paragraph, unit, start, end = _position(result, i)
                if kind != decoding.SPAN:
                    self.assertEqual([-1] * 4, [paragraph, unit, start, end])
                    continue
                # The title, number -1, comes first in its paragraph.
                index = sum(record["sizes"][:paragraph]) + unit + 1
                self.assertLess(unit + 1, record["sizes"][paragraph])
                self.assertEqual(text, record["units"][index][start:end])

    def test_supporting_facts(self):
        """Titles, empty sentences and cut sentences are never facts."""
        records, logits = span_answers.random_batch(4, "span")
        expected = np.zeros([len(records), 4, 5])
        for i, record in enumerate(records):
            for place, probability in span_answers.reference_facts(
                logits, i, record
            ).items():
                expected[(i, *place)] = probability
        self.assertIn(b"", records[0]["units"][1:])
        for shape in (tf.constant([4, 5]), None):
            result = _decode(
                logits, *span_answers.inputs_of(records), 0.5, shape=shape
            )
            found = result["supporting_fact_probabilities"].numpy()
            cut = expected[:, : found.shape[1], : found.shape[2]]
            self.assertAllClose(cut, found, rtol=1e-5)
            self.assertAllClose(expected.sum(), found.sum(), rtol=1e-5)
        # Without `shape`, the result has room for three paragraphs of two
        # sentences.
        self.assertEqual((7, 3, 2), found.shape)

    @parameterized.parameters("span", "bio")
    def test_compiles(self, encoding):
        """Decoding compiles with XLA and static shapes, as for a TPU."""
        records, logits = span_answers.random_batch(7, encoding)
        features, context, _ = span_answers.inputs_of(records)
        choose = functools.partial(
            decoding.select_candidates, max_answer_length=5
        )
        compiled = tf.function(choose, jit_compile=True, autograph=False)
        expected = choose(logits, features, context)
        result = compiled(logits, features, context)
        self.assertEqual(set(expected), set(result))
        has_span = expected["scores"] > -1e8
        for name, value in expected.items():
            got = result[name]
            # Values of units without a span are arbitrary.
            if name in ("scores", "probabilities", "starts", "ends"):
                value, got = value[has_span], got[has_span]
            self.assertAllClose(value, got)


class HandMadeTest(tf.test.TestCase, parameterized.TestCase):
    # The input: CLS, a question and a title of two tokens each, two sentences
    # of three tokens and one, padding.
    RECORD = {
        "types": [1, 3, 3, 2, 2, 1, 1, 1, 1, 0],
        "sentences": [-1, 1, 2, 4, 4, 5, 5, 5, 6, -1],
        "units": ["Émile X", " né à Bâle", "Fin."],
        "sizes": [3],
        "global_units": [-1, -1, -1, -1, 0, 1, 2, -1],
        # SentencePiece's token "à" includes the space before it.
        "starts": [-1, -1, -1, 0, 7, 1, 4, 8, 0, -1],
        "ends": [-1, -1, -1, 6, 8, 4, 7, 13, 3, -1],
        "cuts": [0] * 10,
    }

    def _decode(self, begin, end, facts, cuts=None, record=RECORD):
        """Returns the answer to a record with the given probabilities."""
        record = record | ({} if cuts is None else {"cuts": cuts})
        begin, end, facts = (
            np.array([values], np.float32) + 1e-37
            for values in (begin, end, facts)
        )
        logits = {
            "answer_begin_logits": np.log(begin),
            "answer_end_logits": np.log(end),
            "supporting_fact_logits": np.log(facts / (1 - facts)),
            "answer_type_logits": np.log([[0.8, 0.1, 0.1]]).astype(np.float32),
        }
        return _decode(logits, *span_answers.inputs_of([record], 10, 8), 0.5)

    def test_example(self):
        # The best product is 0.3 * 0.4: 0.5 * 0.1 is less, and the span
        # of 0.5 * 0.4 would end before it begins.
        result = self._decode(
            [0, 0, 0, 0, 0, 0, 0.3, 0.2, 0.5, 0],
            [0, 0, 0, 0, 0, 0.5, 0, 0.4, 0.1, 0],
            [0.9, 0.9, 0.9, 0.9, 0.2, 0.6, 0.7, 0.9],
        )
        self.assertEqual("à Bâle", result["answer"][0].numpy().decode())
        # " né " has 5 bytes, "à Bâle" 8.
        self.assertEqual([0, 0, 5, 13], _position(result))
        self.assertAllClose([0.8 * 0.12], result["answer_probability"])
        self.assertAllEqual([0], result["answer_type"])
        self.assertAllClose(
            [[[0.6, 0.7]]], result["supporting_fact_probabilities"]
        )

    def test_first_of_equal_spans(self):
        same = [0, 0, 0, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0]
        for facts, expected in (
            ([0.7] * 8, "Émile"),
            ([0.1] * 5 + [0.7] * 3, "né"),
        ):
            (answer,) = self._decode(same, same, facts)["answer"].numpy()
            self.assertEqual(expected, answer.decode())

    def test_positions(self):
        """Units are numbered within their paragraph; titles have -1."""
        begin, end = [0.0] * 10, [0.0] * 10
        begin[8] = end[8] = begin[3] = end[3] = 1.0
        for sizes, facts, expected in (
            ([1, 2], [0.1] * 6 + [0.9, 0.1], [1, 0, 0, 3]),
            ([2, 0, 1], [0.1] * 6 + [0.9, 0.1], [2, -1, 0, 3]),
            ([3], [0.1] * 4 + [0.9] + [0.1] * 3, [0, -1, 0, 6]),
        ):
            record = self.RECORD | {"sizes": sizes}
            result = self._decode(begin, end, facts, record=record)
            self.assertEqual(expected, _position(result))

    def test_whole_words(self):
        """Spans of whole words rank before other spans."""
        begin = [0, 0, 0, 0, 0, 0.1, 0.5, 0.3, 0.1, 0]
        end = [0, 0, 0, 0, 0, 0.3, 0.2, 0.5, 0, 0]
        facts = [0.1] * 5 + [0.9, 0.1, 0.1]
        for cuts, expected, probability in (
            ([0] * 10, "\u00e0 B\u00e2le", 0.25),
            # "n\u00e9" and "\u00e0" are one word: 0.3 * 0.5 > 0.1 * 0.5.
            ([0] * 5 + [2, 1, 0, 0, 0], "B\u00e2le", 0.15),
            # All three tokens belong to one word.
            ([0] * 5 + [2, 3, 1, 0, 0], "n\u00e9 \u00e0 B\u00e2le", 0.05),
        ):
            result = self._decode(begin, end, facts, cuts)
            (answer,) = result["answer"].numpy()
            self.assertEqual(expected, answer.decode())
            self.assertAllClose(
                [0.8 * probability], result["answer_probability"], rtol=1e-3
            )
        # The word has more tokens than the maximum length of an answer.
        logits = {
            f"answer_{name}_logits": np.log(np.array([x], np.float32) + 1e-9)
            for name, x in (("begin", begin), ("end", end))
        }
        logits["supporting_fact_logits"] = np.zeros([1, 8], np.float32)
        record = self.RECORD | {"cuts": [0] * 5 + [2, 3, 1, 0, 0]}
        features, context, _ = span_answers.inputs_of([record], 10, 8)
        spans = decoding.best_spans(
            logits, *features.values(), context["long_word_cuts"], 2
        )
        # The span extends to the end of the word, beyond the maximum length.
        self.assertAllEqual([6, 7], [spans.begins[0, 5], spans.ends[0, 5]])
        self.assertAllClose(0.25, spans.probabilities[0, 5], rtol=1e-3)

    @parameterized.parameters(0, 1, 2, 9)
    def test_only_text(self, position):
        """Tokens of CLS, question and padding are never answers."""
        begin = [1e-30] * 10
        begin[position] = 1.0
        # Token 8 is the most probable of the tokens that can be answers.
        begin[8] = 1e-29
        facts = [0.9] * 4 + [0.1] * 3 + [0.9]
        self.assertEqual(b"Fin", self._decode(begin, begin, facts)["answer"][0])

    def test_runs(self):
        """Finds each run of the reference when it is the most probable."""
        labels = [2, 0, 1, 0, 2, 1, 1, 2, 0, 1]
        runs = [(1, 2), (3, 3), (5, 6), (8, 9)]
        self.assertEqual(runs, span_answers.find_runs(labels, [1] * 10))
        for labels, sure, expected in (
            *((labels, run, run) for run in runs),
            # The first of equal runs is chosen.
            ([2, 0, 2, 0, 0], (0, 4), (1, 1)),
        ):
            logits = 2.0 * np.eye(3, dtype=np.float32)[labels]
            logits[sure[0] : sure[1] + 1] *= 3
            spans = decoding.best_spans(
                {
                    "answer_bio_logits": logits[np.newaxis],
                    "supporting_fact_logits": np.zeros([1, 2], np.float32),
                },
                np.ones([1, len(labels)], np.int32),
                np.ones([1, len(labels)], np.int32),
                np.zeros([1, len(labels)], np.int32),
                30,
            )
            self.assertEqual(
                expected, (int(spans.begins[0, 1]), int(spans.ends[0, 1]))
            )

    def test_choose_sentences(self):
        scores = tf.constant([[-1.0, -3.0, -2.0]])
        probabilities = tf.constant([[0.1, 0.6, 0.7]])
        for threshold, expected in ((0.0, 0), (0.5, 2), (0.9, 2), (None, 2)):
            chosen = decoding.choose_sentences(scores, probabilities, threshold)
            self.assertAllEqual([expected], chosen)

    def test_product_of_labels(self):
        """A unit of 0.9 * 0.5 ranks before a unit of 0.45 * 0.8."""
        labels = tf.constant([[[0.9, 0.05, 0.05], [0.45, 0.3, 0.25]]])
        facts = tf.constant([[0.5, 0.8]])
        spans = decoding.best_spans(
            {
                "answer_bio_logits": tf.math.log(labels),
                "supporting_fact_logits": tf.math.log(facts / (1 - facts)),
            },
            tf.constant([[1, 1]]),
            tf.constant([[0, 1]]),
            tf.constant([[0, 0]]),
            30,
        )
        self.assertAllClose([[0.9, 0.45]], spans.probabilities)
        chosen = decoding.choose_sentences(spans.scores, facts, None)
        self.assertAllEqual([0], chosen)

    def test_is_answer_token(self):
        is_answer = decoding.is_answer_token(
            tf.constant([[1, 3, 2, 1, 0]]), tf.constant([[-1, 1, 3, 4, -1]])
        )
        self.assertAllEqual([[False, False, True, True, False]], is_answer)


if __name__ == "__main__":
    tf.test.main()
