import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.hotpotqa import decoding
from etcmodel.tasks.hotpotqa import evaluation
from etcmodel.tasks.hotpotqa.features import HotpotQAContext

_WORDS = ["a", "of", "Zürich", "日本", "naïve", "x-y", "1,000", "Ω"]
_LONG, _GLOBAL = 70, 24


def _random_record(rng, num_paragraphs):
    """One record as the layout engine would place it, with its texts.

    Some titles and sentences have no token, some no place in the input.
    """
    words = [int(n) for n in rng.integers(1, 4, size=2)]
    types = [1] + [3] * words[0]
    sentences = [-1, *range(1, words[0] + 1)]
    starts, ends = [-1] * len(types), [-1] * len(types)
    global_segments = [-1] * len(types)
    segments, sizes = [], []
    for _ in range(num_paragraphs):
        global_segments.append(-1)
        sizes.append(int(rng.integers(1, 4)))
        for place in range(sizes[-1]):
            text = b"" if place == 0 else b" "
            tokens = []
            for _ in range(int(rng.integers(0, 8))):
                word = rng.choice(_WORDS).encode("utf-8")
                tokens.append((len(text), len(text) + len(word)))
                text += word + b" "
            segments.append(text)
            if rng.random() < 0.1:  # There was no room for it.
                continue
            for start, end in tokens:
                types.append(2 if place == 0 else 1)
                sentences.append(len(global_segments))
                starts.append(start)
                ends.append(end)
            global_segments.append(len(segments) - 1)
    return {
        "types": types,
        "sentences": sentences,
        "starts": starts,
        "ends": ends,
        "global_segments": global_segments,
        "segments": segments,
        "sizes": sizes,
    }


def _dense(records, name, length, pad=-1):
    rows = np.full([len(records), length], pad, np.int32)
    for row, record in zip(rows, records, strict=True):
        row[: len(record[name])] = record[name]
    return rows


def _context(records, long_length, global_length):
    segments, sizes = (
        tf.ragged.constant([record[name] for record in records], dtype, 1)
        for name, dtype in (("segments", tf.string), ("sizes", tf.int64))
    )
    return HotpotQAContext(
        segments=segments,
        paragraph_sizes=sizes,
        global_segments=tf.constant(
            _dense(records, "global_segments", global_length)
        ),
        starts=tf.constant(_dense(records, "starts", long_length)),
        ends=tf.constant(_dense(records, "ends", long_length)),
    )


def _arguments(records, logits, long_length=_LONG, global_length=_GLOBAL):
    """The arguments of `decode_answers`."""
    return (
        logits,
        tf.constant(_dense(records, "types", long_length, pad=0)),
        tf.constant(_dense(records, "sentences", long_length)),
        _context(records, long_length, global_length),
    )


def _softmax(values):
    exponents = np.exp(values - values.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def _sigmoid(values):
    return 1 / (1 + np.exp(-values))


def _find_runs(labels, sentences):
    """First and last token of every run, in plain Python."""
    runs = []
    is_open = False
    for i, (label, sentence) in enumerate(zip(labels, sentences, strict=True)):
        if label == 2 or sentence < 0:
            is_open = False
        elif label == 0 or not is_open or sentence != sentences[i - 1]:
            runs.append((i, i))
            is_open = True
        else:
            runs[-1] = (runs[-1][0], i)
    return runs


def _candidates(logits, i, types, sentences, max_answer_length):
    """All spans of record i: (rank, begin, end, probability, sentence)."""
    text = [
        t in (1, 2) and s >= 0 for t, s in zip(types, sentences, strict=True)
    ]
    if "answer_bio_logits" in logits:
        p = logits["answer_bio_logits"][i][: len(types)].astype(np.float64)
        p = _softmax(p)
        inside = [s if t else -1 for s, t in zip(sentences, text, strict=True)]
        for begin, end in _find_runs(p.argmax(-1).tolist(), inside):
            if end - begin < max_answer_length:
                mean = p.max(-1)[begin : end + 1].mean()
                yield mean, begin, end, mean, sentences[begin]
        for j in np.flatnonzero(text).tolist():
            yield p[j, 0] - 10, j, j, p[j, 0], sentences[j]
        return
    begin_p, end_p = (
        _softmax(logits[f"answer_{name}_logits"][i].astype(np.float64))
        for name in ("begin", "end")
    )
    for begin in range(len(types)):
        for end in range(begin, len(types)):
            if (
                text[begin]
                and text[end]
                and sentences[begin] == sentences[end]
                and end - begin + 1 <= max_answer_length
            ):
                p = begin_p[begin] * end_p[end]
                yield p, begin, end, p, sentences[begin]


def _reference(logits, i, record, threshold, max_answer_length):
    """The answer by trying every span: (begin, end, probability) or None."""
    facts = _sigmoid(logits["supporting_fact_logits"][i].astype(np.float64))
    spans = list(
        _candidates(
            logits, i, record["types"], record["sentences"], max_answer_length
        )
    )
    if not spans:
        return None
    chosen = [span for span in spans if facts[span[4]] >= threshold]
    if not chosen:
        best = max(facts[span[4]] for span in spans)
        chosen = [span for span in spans if facts[span[4]] == best]
    _, begin, end, probability, _ = max(chosen, key=lambda span: span[0])
    return begin, end, probability


def _random_logits(
    rng, records, encoding, long_length=_LONG, global_length=_GLOBAL
):
    size = len(records)
    logits = {
        "supporting_fact_logits": rng.normal(size=[size, global_length]),
        "answer_type_logits": rng.normal(size=[size, 3]),
    }
    if encoding == "bio":
        shape = [size, long_length, 3]
        logits["answer_bio_logits"] = 2 * rng.normal(size=shape)
    else:
        for name in ("begin", "end"):
            values = 2 * rng.normal(size=[size, long_length])
            for row, record in zip(values, records, strict=True):
                row[len(record["types"]) :] = -1e4
            logits[f"answer_{name}_logits"] = values
    return {name: x.astype(np.float32) for name, x in logits.items()}


class ReferenceTest(tf.test.TestCase, parameterized.TestCase):
    """Random batches, against a reference that tries every span."""

    def _batch(self, seed, encoding):
        rng = np.random.default_rng(seed)
        # The last one has no text at all.
        records = [_random_record(rng, n) for n in (1, 2, 3, 2, 3, 1, 0)]
        self.assertLessEqual(
            max(len(record["types"]) for record in records), _LONG
        )
        return records, _random_logits(rng, records, encoding)

    @parameterized.product(
        encoding=("span", "bio"),
        max_answer_length=(1, 2, 30),
        seed=(1, 2, 3, 4),
    )
    def test_answers(self, encoding, max_answer_length, seed):
        records, logits = self._batch(seed, encoding)
        arguments = _arguments(records, logits)
        context = arguments[-1]
        thresholds = [0.0, 0.3, 0.5, 0.8, 1.0]
        spans = decoding.best_spans(*arguments[:3], max_answer_length)
        chosen = decoding.choose_sentences(
            spans,
            decoding.supporting_fact_probabilities(
                logits, context.global_segments
            ),
            tf.constant(thresholds),
        ).numpy()
        for k, threshold in enumerate(thresholds):
            result = decoding.decode_answers(
                *arguments, threshold, max_answer_length
            )
            for i, record in enumerate(records):
                expected = _reference(
                    logits, i, record, threshold, max_answer_length
                )
                if expected is None:
                    self.assertEqual(-1, chosen[i, k])
                    self._check_text(result, logits, i, b"", 0.0)
                    continue
                begin, end, probability = expected
                sentence = chosen[i, k]
                self.assertEqual(begin, spans.begins[i, sentence])
                self.assertEqual(end, spans.ends[i, sentence])
                self.assertAllClose(
                    probability, spans.probabilities[i, sentence], rtol=1e-4
                )
                segment = record["global_segments"][sentence]
                text = record["segments"][segment][
                    record["starts"][begin] : record["ends"][end]
                ]
                self._check_text(result, logits, i, text, probability)

    def _check_text(self, result, logits, i, text, probability):
        kinds = _softmax(logits["answer_type_logits"][i].astype(np.float64))
        kind = int(kinds.argmax())
        if kind:
            text, probability = [None, b"yes", b"no"][kind], 1.0
        self.assertEqual(kind, result["answer_type"][i])
        self.assertEqual(text, result["answer"][i].numpy())
        self.assertAllClose(
            kinds[kind] * probability,
            result["answer_probability"][i],
            rtol=1e-4,
        )

    @parameterized.parameters("span", "bio")
    def test_supporting_facts(self, encoding):
        records, logits = self._batch(5, encoding)
        expected = np.zeros([len(records), 4, 5])
        for i, record in enumerate(records):
            places = [
                (paragraph, place)
                for paragraph, size in enumerate(record["sizes"])
                for place in range(size)
            ]
            for j, segment in enumerate(record["global_segments"]):
                if segment >= 0 and places[segment][1] > 0:
                    paragraph, place = places[segment]
                    expected[i, paragraph, place - 1] = _sigmoid(
                        logits["supporting_fact_logits"][i, j]
                    )
        self.assertTrue((expected > 0).any() and (expected[:, :2] == 0).any())
        for shape in ([4, 5], None):
            result = decoding.decode_answers(
                *_arguments(records, logits),
                shape=None if shape is None else tf.constant(shape),
            )
            found = result["supporting_fact_probabilities"].numpy()
            cut = expected[:, : found.shape[1], : found.shape[2]]
            self.assertAllClose(cut, found, rtol=1e-5)
            self.assertAllClose(expected.sum(), found.sum(), rtol=1e-5)
        # Three paragraphs of at most two sentences.
        self.assertEqual((7, 3, 2), found.shape)

    @parameterized.parameters("span", "bio")
    def test_unknown_shapes(self, encoding):
        arguments = _arguments(*self._batch(6, encoding))

        def unknown(value):
            if isinstance(value, tf.RaggedTensor):
                return tf.RaggedTensorSpec([None, None], value.dtype)
            return tf.TensorSpec([None] * len(value.shape), value.dtype)

        decode = tf.function(
            decoding.decode_answers,
            input_signature=tf.nest.map_structure(unknown, arguments),
        )
        expected = decoding.decode_answers(*arguments)
        for name, value in decode(*arguments).items():
            if value.dtype == tf.string:
                self.assertAllEqual(expected[name], value)
            else:
                self.assertAllClose(expected[name], value)
        # No record, with and without lengths.
        for long_length, global_length in ((_LONG, _GLOBAL), (0, 0)):
            lengths = long_length, global_length
            logits = _random_logits(
                np.random.default_rng(0), [], encoding, *lengths
            )
            arguments = _arguments([], logits, *lengths)
            for function in (decode, decoding.decode_answers):
                result = function(*arguments)
                self.assertEqual([0], result["answer"].shape)
                self.assertEqual(
                    0, result["supporting_fact_probabilities"].shape[0]
                )

    @parameterized.parameters("span", "bio")
    def test_compiles(self, encoding):
        """At static shapes, as a TPU needs it."""
        records, _ = batch = self._batch(7, encoding)
        logits, types, sentences, context = _arguments(*batch)
        labels = {
            "record": np.zeros([len(records), 2], np.int32),
            "weight": np.ones([len(records)], np.float32),
            "global_segments": context.global_segments,
            "long_starts": context.starts,
            "long_ends": context.ends,
            "long_token_type_ids": types,
            "long_sentence_ids": sentences,
        }
        predict = functools.partial(
            evaluation.predict_for_thresholds, max_answer_length=5
        )
        expected = predict(logits, labels)
        compiled = tf.function(predict, jit_compile=True, autograph=False)
        result = compiled(logits, labels)
        self.assertEqual(set(expected), set(result))
        for name, value in expected.items():
            if tf.as_dtype(value.dtype).is_floating:
                self.assertAllClose(value, result[name])
            else:
                self.assertAllEqual(value, result[name])
        spans = functools.partial(decoding.best_spans, max_answer_length=5)
        arguments = logits, types, sentences
        compiled = tf.function(spans, jit_compile=True, autograph=False)
        has_span = spans(*arguments).scores > -1e8
        for eager, fast in zip(
            spans(*arguments), compiled(*arguments), strict=True
        ):
            self.assertAllClose(eager[has_span], fast[has_span])


# A question of two words, a title of two, sentences of three words and of one.
_TYPES = np.array([[1, 3, 3, 2, 2, 1, 1, 1, 1, 0]], np.int32)
_SENTENCES = np.array([[-1, 1, 2, 4, 4, 5, 5, 5, 6, -1]], np.int32)
_RECORD = {
    "segments": ["Émile X", " né à Bâle", "Fin."],
    "sizes": [3],
    "global_segments": [-1, -1, -1, -1, 0, 1, 2, -1],
    "starts": [-1, -1, -1, 0, 7, 1, 5, 8, 0, -1],
    "ends": [-1, -1, -1, 6, 8, 4, 7, 13, 3, -1],
}


class ByHandTest(tf.test.TestCase, parameterized.TestCase):
    FACTS = (0.9, 0.9, 0.9, 0.9, 0.2, 0.6, 0.7, 0.9)

    def _logits(self, begin, end, facts, answer_type=(1.0, 0.0, 0.0)):
        """Logits from probabilities."""
        begin, end, facts, answer_type = (
            np.array([values], np.float32) + 1e-37
            for values in (begin, end, facts, answer_type)
        )
        return {
            "answer_begin_logits": np.log(begin),
            "answer_end_logits": np.log(end),
            "supporting_fact_logits": np.log(facts / (1 - facts)),
            "answer_type_logits": np.log(answer_type),
        }

    def _decode(self, logits, **kwargs):
        return decoding.decode_answers(
            logits, _TYPES, _SENTENCES, _context([_RECORD], 10, 8), **kwargs
        )

    def _answer(self, logits, **kwargs):
        return self._decode(logits, **kwargs)["answer"][0].numpy().decode()

    def test_offsets_are_bytes(self):
        begin = [0, 0, 0, 0, 0, 0, 0.9, 0, 0.1, 0]
        end = [0, 0, 0, 0, 0, 0, 0, 0.8, 0.2, 0]
        logits = self._logits(begin, end, self.FACTS)
        result = self._decode(logits)
        self.assertEqual("à Bâle", result["answer"][0].numpy().decode())
        self.assertAllClose([0.72], result["answer_probability"])
        self.assertAllEqual([0], result["answer_type"])
        self.assertAllClose(
            [[[0.6, 0.7]]], result["supporting_fact_probabilities"]
        )

    def test_product_and_not_the_most_probable_begin(self):
        # 0.5 * 0.1 < 0.3 * 0.4, and 0.5 * 0.4 is no span.
        begin = [0, 0, 0, 0, 0, 0, 0.3, 0.2, 0.5, 0]
        end = [0, 0, 0, 0, 0, 0.5, 0, 0.4, 0.1, 0]
        logits = self._logits(begin, end, self.FACTS)
        self.assertEqual("à Bâle", self._answer(logits))
        result = self._decode(logits)
        self.assertAllClose([0.12], result["answer_probability"])

    def test_sentence_is_a_supporting_fact(self):
        begin = [0, 0, 0, 0.5, 0, 0.3, 0, 0, 0.2, 0]
        end = [0, 0, 0, 0, 0.5, 0.3, 0, 0, 0.2, 0]
        logits = self._logits(begin, end, self.FACTS)
        for threshold, expected in (
            (0.1, "Émile X"),
            (0.5, "né"),
            (0.65, "Fin"),
            # None is one; so the most probable one with text.
            (0.8, "Fin"),
            (1.0, "Fin"),
        ):
            self.assertEqual(
                expected, self._answer(logits, threshold=threshold)
            )

    def test_greatest_length(self):
        begin = [0, 0, 0, 0, 0, 0.8, 0.15, 0.05, 0, 0]
        end = [0, 0, 0, 0, 0, 0, 0.1, 0.9, 0, 0]
        logits = self._logits(begin, end, self.FACTS)
        for longest, expected in (
            (50, "né à Bâle"),  # Far more than there are tokens.
            (3, "né à Bâle"),
            (2, "à Bâle"),  # 0.15 * 0.9 > 0.8 * 0.1
            (1, "Bâle"),  # 0.05 * 0.9 > 0.15 * 0.1
        ):
            answer = self._answer(logits, max_answer_length=longest)
            self.assertEqual(expected, answer)

    def test_equals(self):
        """The first of several spans of the same probability."""
        same = [0, 0, 0, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0]
        logits = self._logits(same, same, [0.7] * 8)
        self.assertEqual("Émile", self._answer(logits))
        logits = self._logits(same, same, [0.1] * 5 + [0.7] * 3)
        self.assertEqual("né", self._answer(logits))

    @parameterized.parameters(0, 1, 2, 9)
    def test_only_text(self, position):
        """CLS, question and padding are no answers, however probable."""
        begin = [1e-30] * 10
        begin[position] = 1.0
        # Were their probabilities below those that can be told apart.
        begin[8] = 1e-29
        logits = self._logits(begin, begin, [0.9] * 4 + [0.1] * 3 + [0.9])
        self.assertEqual("Fin", self._answer(logits))

    def test_yes_and_no(self):
        some = [0.1] * 10
        for answer_type, expected in (
            ((0.3, 0.5, 0.2), "yes"),
            ((0.1, 0.2, 0.7), "no"),
        ):
            result = self._decode(
                self._logits(some, some, self.FACTS, answer_type)
            )
            self.assertEqual(expected.encode(), result["answer"][0])
            self.assertAllClose(
                [max(answer_type)], result["answer_probability"]
            )
            self.assertAllEqual([1 + (expected == "no")], result["answer_type"])

    def test_no_text(self):
        """As of a record whose text was cut, all of it."""
        some = [0.1] * 10
        logits = self._logits(some, some, self.FACTS)
        sentences = np.array([[-1, 1, 2] + [-1] * 7], np.int32)
        types = np.array([[1, 3, 3] + [0] * 7], np.int32)
        record = dict(
            _RECORD,
            global_segments=[-1] * 8,
            starts=[-1] * 10,
            ends=[-1] * 10,
        )
        result = decoding.decode_answers(
            logits, types, sentences, _context([record], 10, 8)
        )
        self.assertAllEqual([b""], result["answer"])
        self.assertAllEqual([0.0], result["answer_probability"])
        self.assertAllEqual(
            [[[0.0, 0.0]]], result["supporting_fact_probabilities"]
        )

    def test_sentences_without_tokens(self):
        """A supporting fact without a token holds no answer."""
        some = [0.1] * 10
        logits = self._logits(some, some, [0.1] * 5 + [0.8, 0.3, 0.1])
        sentences = np.where(_SENTENCES == 5, -1, _SENTENCES)
        result = decoding.decode_answers(
            logits, _TYPES, sentences, _context([_RECORD], 10, 8)
        )
        self.assertAllEqual([b"Fin"], result["answer"])


class BioTest(tf.test.TestCase, parameterized.TestCase):
    def _logits(self, labels, sure=(), facts=8):
        """Logits of labels, greater for the `sure` positions."""
        logits = 2.0 * np.eye(3, dtype=np.float32)[labels]
        logits[list(sure)] *= 3
        return {
            "answer_bio_logits": logits[np.newaxis],
            "supporting_fact_logits": np.zeros([1, facts], np.float32),
            "answer_type_logits": np.zeros([1, 3], np.float32),
        }

    def _best(self, labels, sentences, sure=(), **kwargs):
        spans = decoding.best_spans(
            self._logits(labels, sure),
            np.ones([1, len(labels)], np.int32),
            np.array([sentences], np.int32),
            **kwargs,
        )
        return [
            (begin, end)
            for begin, end, score in zip(
                spans.begins[0].numpy(),
                spans.ends[0].numpy(),
                spans.scores[0].numpy(),
                strict=True,
            )
            if score > -1e8
        ]

    def test_runs(self):
        labels = [2, 0, 1, 0, 2, 1, 1, 2, 0, 1]
        runs = [(1, 2), (3, 3), (5, 6), (8, 9)]
        self.assertEqual(runs, _find_runs(labels, [1] * 10))
        for begin, end in runs:
            sure = range(begin, end + 1)
            self.assertEqual([(begin, end)], self._best(labels, [1] * 10, sure))

    def test_equal_runs(self):
        self.assertEqual([(1, 1)], self._best([2, 0, 2, 0, 0], [1] * 5))

    def test_runs_stay_in_their_sentences(self):
        labels = [0, 1, 1, 1, 1, 1]
        self.assertEqual(
            [(0, 1), (2, 3), (4, 5)], self._best(labels, [1, 1, 2, 2, 4, 4])
        )
        # What is no text ends a run, too.
        self.assertEqual(
            [(2, 3), (5, 5)], self._best(labels, [-1, -1, 1, 1, -1, 2])
        )

    def test_mean_and_not_sum(self):
        self.assertEqual([(4, 4)], self._best([0, 1, 1, 2, 0], [1] * 5, [4]))

    def test_long_runs(self):
        labels = [0, 1, 1, 2, 0, 1]
        sure = [0, 1, 2]
        self.assertEqual([(0, 2)], self._best(labels, [1] * 6, sure))
        self.assertEqual(
            [(4, 5)],
            self._best(labels, [1] * 6, sure, max_answer_length=2),
        )

    def test_no_run(self):
        """The most probable beginning stands in."""
        logits = self._logits([2] * 5)
        logits["answer_bio_logits"][0, 3, 0] = 1.0
        spans = decoding.best_spans(
            logits, np.ones([1, 5], np.int32), np.ones([1, 5], np.int32)
        )
        self.assertEqual(3, spans.begins[0, 1])
        self.assertEqual(3, spans.ends[0, 1])
        total = np.exp([1.0, 0.0, 2.0]).sum()
        self.assertAllClose(np.exp(1) / total, spans.probabilities[0, 1])

    def test_probability_of_a_run(self):
        spans = decoding.best_spans(
            self._logits([2, 0, 1, 2], sure=[2]),
            np.ones([1, 4], np.int32),
            np.ones([1, 4], np.int32),
        )
        expected = [np.exp(x) / (np.exp(x) + 2) for x in (2.0, 6.0)]
        self.assertAllClose(np.mean(expected), spans.probabilities[0, 1])


class ChooseTest(tf.test.TestCase):
    def test_example(self):
        """The one of the documentation."""
        spans = decoding.Spans(
            tf.constant([[-1.0, -3.0, -2.0]]), *[tf.zeros([1, 3], tf.int32)] * 3
        )
        chosen = decoding.choose_sentences(
            spans,
            tf.constant([[0.1, 0.6, 0.7]]),
            tf.constant([0.0, 0.5, 0.9]),
        )
        self.assertAllEqual([[0, 2, 2]], chosen)


if __name__ == "__main__":
    tf.test.main()
