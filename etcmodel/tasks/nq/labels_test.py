"""Tests of Natural Questions' `labels`."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.nq import labels
from etcmodel.tasks.nq.features import NQFeatureBuilder
from etcmodel.tasks.nq.features import NQFeatureConfig
from etcmodel.tasks.nq.labels import WindowLabels
from etcmodel.tasks.nq.pipeline import make_builder
from etcmodel.tasks.nq.pipeline import raw_inputs
from etcmodel.tasks.nq.records import Annotation
from etcmodel.tasks.nq.records import read_records
from etcmodel.testing import real_data_path

NULL, YES, NO, LONG, SHORT = range(5)


def annotation(long=(-1, -1), short=(), yes_no="none"):
    """An annotation of these spans of words."""
    return Annotation(*long, tuple(short), yes_no)


def make(answer, words, windows, page_start=4):
    """The labels for windows that are (start, size) pairs."""
    return labels.make_window_labels(
        answer,
        np.array(words, np.int32),
        *np.array(windows, np.int64).reshape([-1, 2]).T,
        page_start,
    )


class AnswerTypeTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (annotation(), NULL),
        (annotation((3, 9)), LONG),
        (annotation((3, 9), [(4, 5)]), SHORT),
        (annotation((3, 9), yes_no="yes"), YES),
        (annotation((3, 9), yes_no="no"), NO),
        # Yes and no before short, short before long.
        (annotation((3, 9), [(4, 5)], "yes"), YES),
        (annotation((3, 9), [(4, 5)], "no"), NO),
        (annotation(yes_no="yes"), YES),
        (annotation((0, 1), [(0, 1)]), SHORT),
        (annotation((0, 1)), LONG),
    )
    def test_precedence(self, answer, expected):
        self.assertEqual(labels.answer_type(answer), expected)


class WindowLabelsTest(tf.test.TestCase, parameterized.TestCase):
    # Ten tokens: the words 10 to 17; 11 and 14 have two tokens, 13 has none,
    # and neither have the words before 10.
    WORDS = (10, 11, 11, 12, 14, 14, 15, 16, 17, 18)

    def test_docstring(self):
        got = make(annotation((5, 8), [(6, 7)]), [5, 5, 6, 7], [(0, 3), (2, 2)])
        self.assertEqual([x[:2] for x in got], [(6, 6), (4, 4)])
        self.assertEqual([x.answer_type for x in got], [SHORT, SHORT])
        # The long answer is all of the page.
        self.assertEqual([x[2:4] for x in got], [(4, 0), (0, 5)])

    def test_field_order(self):
        self.assertEqual(
            WindowLabels._fields,
            (
                "short_answer_start",
                "short_answer_end",
                "long_answer_start",
                "long_answer_end",
                "answer_type",
            ),
        )

    def test_words_of_several_tokens(self):
        """The first token of the first word, the last one of the last."""
        answer = annotation((11, 16), [(11, 12), (14, 15)])
        (got,) = make(answer, self.WORDS, [(0, 10)], page_start=7)
        self.assertEqual(got, (7 + 1, 7 + 5, 7 + 1, 7 + 6, SHORT))

    @parameterized.named_parameters(
        # Of the long answer, the tokens 3 to 6; of the short one, 4 and 5.
        ("all", (0, 10), (8, 9, 7, 10, SHORT)),
        ("just", (3, 4), (5, 6, 4, 7, SHORT)),
        ("from_short_start", (4, 6), (4, 5, 0, 6, SHORT)),
        ("to_short_end", (2, 4), (6, 7, 5, 0, SHORT)),
        ("half_short_at_the_end", (1, 4), (7, 0, 6, 0, SHORT)),
        ("half_short_at_the_start", (5, 5), (0, 4, 0, 5, SHORT)),
        # The ends of the long answer are told, but what counts is the short.
        ("long_start_only", (0, 4), (0, 0, 7, 0, NULL)),
        ("long_end_only", (6, 4), (0, 0, 0, 4, NULL)),
        ("before", (0, 3), (0, 0, 0, 0, NULL)),
        ("behind", (7, 3), (0, 0, 0, 0, NULL)),
        ("empty", (0, 0), (0, 0, 0, 0, NULL)),
    )
    def test_windows_of_a_short_answer(self, window, expected):
        (got,) = make(annotation((12, 16), [(14, 15)]), self.WORDS, [window])
        self.assertEqual(got, WindowLabels(*expected))

    @parameterized.product(
        case=(
            ("all", (0, 10), (7, 10), True),
            ("start", (0, 4), (7, 0), True),
            ("end", (6, 4), (0, 4), True),
            # A window in the middle of a long answer.
            ("inside", (4, 2), (0, 0), False),
            ("before", (0, 3), (0, 0), False),
            ("behind", (7, 3), (0, 0), False),
        ),
        answer=(("none", LONG), ("yes", YES), ("no", NO)),
    )
    def test_windows_of_a_long_answer(self, case, answer):
        _, window, (start, end), is_seen = case
        yes_no, kind = answer
        (got,) = make(annotation((12, 16), yes_no=yes_no), self.WORDS, [window])
        self.assertEqual(
            got, WindowLabels(0, 0, start, end, kind if is_seen else NULL)
        )

    def test_yes_is_told_by_the_long_answer_alone(self):
        """Even if the annotator has marked a short answer as well."""
        answer = annotation((12, 16), [(14, 15)], "yes")
        got = make(answer, self.WORDS, [(0, 10), (4, 2)])
        self.assertEqual(got, [(8, 9, 7, 10, YES), (4, 5, 0, 0, NULL)])

    def test_no_answer(self):
        got = make(annotation(), self.WORDS, [(0, 10), (5, 5)])
        self.assertEqual(got, [(0, 0, 0, 0, NULL)] * 2)

    def test_short_answer_of_several_pieces(self):
        """From the first to the last, in whatever order they stand."""
        answer = annotation((10, 19), [(16, 17), (11, 12), (14, 15)])
        (got,) = make(answer, self.WORDS, [(0, 10)])
        self.assertEqual(got, (5, 11, 4, 13, SHORT))

    def test_ends_on_words_without_tokens(self):
        """Such as tags that are not in the input."""
        # The words 12 and 14 remain of 12 to 14, the word 14 of 13 to 14.
        answer = annotation((12, 15), [(13, 15)])
        (got,) = make(answer, self.WORDS, [(0, 10)])
        self.assertEqual(got, (8, 9, 7, 9, SHORT))
        # The word 12 remains of 12 to 13.
        (got,) = make(annotation((9, 14), [(12, 14)]), self.WORDS, [(0, 10)])
        self.assertEqual(got, (7, 7, 4, 7, SHORT))

    def test_spans_without_any_token(self):
        for span in ((13, 14), (0, 10), (19, 25)):
            got = make(annotation(span), self.WORDS, [(0, 10)])
            self.assertEqual(got, [(0, 0, 0, 0, NULL)], span)
            got = make(annotation((10, 12), [span]), self.WORDS, [(0, 10)])
            self.assertEqual(got, [(0, 0, 4, 6, NULL)], span)
        got = make(annotation((3, 9), [(4, 5)]), [], [(0, 0)])
        self.assertEqual(got, [(0, 0, 0, 0, NULL)])

    def test_no_windows(self):
        self.assertEqual(make(annotation(), self.WORDS, []), [])


class RealPagesTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.records = [
            record
            for name in ("00", "01")
            for record in read_records(
                real_data_path(f"nq/nq-train-{name}.jsonl.gz")
            )
        ]

    @parameterized.product(
        vocab=("bert_uncased_vocab.txt", "gpt2.model"),
        sizes=((512, 128, 128), (4096, 230, 2048)),
        html=(True, False),
    )
    def test_labels_are_the_annotated_words(self, vocab, sizes, html):
        long_length, global_length, stride = sizes
        builder: NQFeatureBuilder = make_builder(
            NQFeatureConfig(
                long_length=long_length,
                global_length=global_length,
                stride=stride,
                include_html_tokens=html,
            ),
            real_data_path(f"vocab/{vocab}"),
        )
        _, windows = builder.build(
            *map(tf.constant, raw_inputs(self.records).values())
        )
        owner, words = windows.record.numpy(), windows.words.numpy()
        for i, record in enumerate(self.records):
            (answer,) = record.annotations
            rows = owner == i
            got = labels.make_window_labels(
                answer,
                windows.piece_words[i].numpy(),
                windows.starts.numpy()[rows],
                windows.sizes.numpy()[rows],
                windows.question_tokens.numpy()[i] + 2,
            )
            self.assertLen(got, np.count_nonzero(rows))
            if answer.long_start < 0:
                self.assertEqual(set(got), {(0, 0, 0, 0, NULL)})
                continue
            self._check(record, answer, got, words[rows], html)
        # The third page has no answer.
        self.assertEqual(
            [x.annotations[0].long_start for x in self.records][2], -1
        )

    def _check(self, record, answer, got, words, html):
        """Compares what is labelled with the words of the annotation."""
        is_word = ~np.array(record.is_html)

        def ends(start, end):
            """First and last word of a span that are in the input."""
            if not html:
                (index,) = np.nonzero(is_word[start:end])
                start, end = start + index[0], start + index[-1] + 1
            return start, end - 1

        ((short_start, short_end),) = answer.short_answers
        expected = [
            *ends(short_start, short_end),
            *ends(answer.long_start, answer.long_end),
        ]
        whole = {"short": 0, "long": 0}
        for label, window in zip(got, words, strict=True):
            told = [window[x] if x else None for x in label[:4]]
            for word, right in zip(told, expected, strict=True):
                self.assertIn(word, (None, right))
                # What is shown is told.
                self.assertEqual(word is not None, right in window)
            for name, start, end in (
                ("short", *label[:2]),
                ("long", *label[2:4]),
            ):
                if start and end:
                    whole[name] += 1
                    first, last = (
                        expected[:2] if name == "short" else expected[2:]
                    )
                    # The span has all tokens of its words, and no others.
                    self.assertNotEqual(window[start - 1], first)
                    self.assertTrue(
                        end + 1 == len(window) or window[end + 1] != last
                    )
                    self.assertAllInRange(window[start : end + 1], first, last)
            self.assertEqual(
                label.answer_type, SHORT if any(label[:2]) else NULL
            )
        self.assertGreater(whole["short"], 0)
        # One long answer has 1424 words.
        if len(words[0]) > 2000 or answer.long_end - answer.long_start < 300:
            self.assertGreater(whole["long"], 0)


if __name__ == "__main__":
    tf.test.main()
