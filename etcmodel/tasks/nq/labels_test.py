"""Tests of the labels of windows of Natural Questions."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.nq.records import Annotation
from etcmodel.pipeline.preprocessor import RecordView
from etcmodel.pipeline.preprocessor import on_host
from etcmodel.tasks.nq import labels
from etcmodel.tasks.nq.labels import WindowLabels
from etcmodel.tasks.nq.task import TASK
from etcmodel.tasks.nq.task import NQPreprocessingConfig
from testing.helpers import real_data_path
from testing.nq_pages import read_real_pages

NULL, YES, NO, LONG, SHORT = range(5)


def annotation(long=(-1, -1), short=(), yes_no="none"):
    """Makes an annotation; spans are in words."""
    return Annotation(*long, tuple(short), yes_no)


def make(answer, words, windows, page_start=4):
    """Makes labels for windows given as (start, size) pairs."""
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
        # Yes and no take precedence over short, short over long.
        (annotation((3, 9), [(4, 5)], "yes"), YES),
        (annotation((3, 9), [(4, 5)], "no"), NO),
        (annotation(yes_no="yes"), YES),
        (annotation((0, 1), [(0, 1)]), SHORT),
        (annotation((0, 1)), LONG),
    )
    def test_precedence(self, answer, expected):
        self.assertEqual(labels.answer_type(answer), expected)


class ChooseAnnotationTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("L", 0),
        ("-", 0),
        # A page has an answer if two annotators found one; one is not enough.
        ("-L---", 0),
        ("L----", 1),
        ("-L--S", 1),
        ("LS", 0),
        ("L-", 1),
        ("--Y-L", 2),
    )
    def test_two_annotators_must_have_an_answer(self, kinds, expected):
        of_kind = {
            "-": annotation(),
            "L": annotation((3, 9)),
            "S": annotation((3, 9), [(4, 5)]),
            "Y": annotation((3, 9), yes_no="yes"),
        }
        # Distinct objects, since they are compared by identity.
        answers = [
            Annotation(x.long_start, x.long_end, x.short_answers, x.yes_no)
            for x in map(of_kind.get, kinds)
        ]
        chosen = labels.choose_annotation(answers)
        self.assertIs(answers[expected], chosen)


def _reference(answer, words, windows, page_start):
    """Makes the expected labels by checking every token."""

    def shown_ends(start, end, window):
        """Returns positions of the first and last token of words, or 0."""
        tokens = [i for i, word in enumerate(words) if start <= word < end]
        places = []
        for token in (tokens[0], tokens[-1]) if tokens else ():
            shown = range(window[0], window[0] + window[1])
            places.append(
                page_start + shown.index(token) if token in shown else 0
            )
        return places or [0, 0]

    made = []
    for window in windows:
        # A short answer extends from its first span to its last.
        ends = sorted(answer.short_answers)
        short = [0, 0]
        if ends:
            short = shown_ends(ends[0][0], max(x[1] for x in ends), window)
        long = shown_ends(answer.long_start, answer.long_end, window)
        kind = {"yes": YES, "no": NO}.get(answer.yes_no)
        if kind is None and ends:
            kind = SHORT
        # The types yes and no depend on the long answer, like the type long.
        seen = short if kind == SHORT else long
        made.append((*short, *long, (kind or LONG) if any(seen) else NULL))
    return made


class WindowLabelsTest(tf.test.TestCase, parameterized.TestCase):
    def test_worked_example(self):
        got = make(annotation((5, 8), [(6, 7)]), [5, 5, 6, 7], [(0, 3), (2, 2)])
        self.assertEqual([x[:2] for x in got], [(6, 6), (4, 4)])
        self.assertEqual([x.answer_type for x in got], [SHORT, SHORT])
        # The long answer is the whole page, so each window shows one of its
        # ends.
        self.assertEqual([x[2:4] for x in got], [(4, 0), (0, 5)])

    @parameterized.named_parameters(
        # The cases are named after what the windows show. The long answer has
        # tokens 3 to 6, the short answer tokens 4 and 5.
        ("all", (0, 10), (8, 9, 7, 10, SHORT)),
        ("half_short_at_the_end", (1, 4), (7, 0, 6, 0, SHORT)),
        ("half_short_at_the_start", (5, 5), (0, 4, 0, 5, SHORT)),
        # If a window does not show the short answer, its type is null.
        ("long_start_only", (0, 4), (0, 0, 7, 0, NULL)),
        ("long_end_only", (6, 4), (0, 0, 0, 4, NULL)),
        ("empty", (0, 0), (0, 0, 0, 0, NULL)),
    )
    def test_windows_of_a_short_answer(self, window, expected):
        words = (10, 11, 11, 12, 14, 14, 15, 16, 17, 18)
        (got,) = make(annotation((12, 16), [(14, 15)]), words, [window])
        self.assertEqual(got, WindowLabels(*expected))

    def test_random_answers(self):
        """Compares labels of random pages with those of a plain reference."""
        rng = np.random.default_rng(0)
        kinds = set()
        for _ in range(300):
            words = 10 + np.cumsum(rng.integers(0, 3, rng.integers(0, 12)))
            starts = rng.integers(0, len(words) + 1, 4)
            windows = [
                (start, rng.integers(0, len(words) + 1 - start))
                for start in starts.tolist()
            ]

            def span():
                start = int(rng.integers(5, 30))
                return start, start + int(rng.integers(1, 12))

            answer = annotation(
                span() if rng.random() < 0.8 else (-1, -1),
                [span() for _ in range(max(0, rng.integers(-2, 4)))],
                str(rng.choice(["none", "none", "yes", "no"])),
            )
            got = make(answer, words, windows, page_start=7)
            self.assertEqual(got, _reference(answer, words, windows, 7))
            kinds |= {x.answer_type for x in got}
        self.assertLen(kinds, 5)


class RealPagesTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.records = read_real_pages()

    @parameterized.parameters(
        ("bert_uncased_vocab.txt", (512, 128, 128), True),
        ("gpt2.model", (4096, 230, 2048), False),
    )
    def test_labels_are_the_annotated_words(self, vocab, sizes, html):
        long_length, global_length, stride = sizes
        preprocessor = TASK.make_preprocessor(
            NQPreprocessingConfig(
                long_length=long_length,
                global_length=global_length,
                stride=stride,
                include_html_tokens=html,
            ),
            real_data_path(f"vocab/{vocab}"),
        )
        inputs = preprocessor.raw_batch(self.records)
        made = on_host(preprocessor(**inputs))
        for i, record in enumerate(self.records):
            view = RecordView(made, i)
            (answer,) = record.annotations
            rows = preprocessor.labels(record, view, "dev").rows
            got = [WindowLabels(**row) for row in rows]
            self.assertLen(got, view.number)
            if answer.long_start < 0:
                self.assertEqual(set(got), {(0, 0, 0, 0, NULL)})
                continue
            self._check(record, answer, got, view.features["words"], html)
        # The third page has no answer.
        self.assertEqual(
            [x.annotations[0].long_start for x in self.records][2], -1
        )

    def _check(self, record, answer, got, words, html):
        """Compares the labels of windows with the words of an annotation."""
        is_word = ~np.array(record.is_html)

        def ends(start, end):
            """Returns the first and last word of a span in the input."""
            if html:
                return start, end - 1
            (index,) = np.nonzero(is_word[start:end])
            return start + index[0], start + index[-1]

        ((short_start, short_end),) = answer.short_answers
        expected = [
            *ends(short_start, short_end),
            *ends(answer.long_start, answer.long_end),
        ]
        for label, window in zip(got, words, strict=True):
            for token, right in zip(label[:4], expected, strict=True):
                # Every window that shows an end of a span labels it.
                self.assertEqual(token > 0, right in window)
                if token:
                    self.assertEqual(right, window[token])
            for start, end in (label[:2], label[2:4]):
                # A span has all tokens of its first and last word.
                if start:
                    self.assertNotEqual(window[start - 1], window[start])
                if 0 < end < len(window) - 1:
                    self.assertNotEqual(window[end + 1], window[end])
            kind = SHORT if any(label[:2]) else NULL
            self.assertEqual(kind, label.answer_type)
        self.assertTrue(any(all(label[:2]) for label in got))


if __name__ == "__main__":
    tf.test.main()
