"""From Natural Questions' logits to answers: evaluation and serving."""

import dataclasses
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf

from etcmodel.datasets import nq
from etcmodel.datasets.nq import metrics
from etcmodel.datasets.nq.metrics import NQGold
from etcmodel.datasets.nq.metrics import NQPrediction
from etcmodel.datasets.nq.records import Candidate
from etcmodel.datasets.nq.records import NQRecord
from etcmodel.feature_utils.etc_features import FEATURES
from etcmodel.models import EtcConfig
from etcmodel.pipeline import example_maker
from etcmodel.pipeline.record_keys import record_keys
from etcmodel.serving import signatures as signatures_lib
from etcmodel.tasks.nq.preprocessor import NQPreprocessor
from etcmodel.tasks.nq.task import TASK
from etcmodel.tasks.nq.task import NQOptions
from etcmodel.tasks.nq.task import NQPreprocessingConfig
from etcmodel.training import evaluation
from testing.conformance.cases import randomize
from testing.nq_answers import random_batch
from testing.nq_answers import reference_pages
from testing.nq_answers import zero_logits
from testing.tasks import encode_records
from testing.tasks import without_tracing
from testing.tasks import write_test_vocab

_SCHEMA = NQPreprocessor.SCHEMA


def _predictions(pages) -> dict[str, NQPrediction]:
    """The best answers of `reference_pages`, whatever their scores."""
    predictions = {}
    for i, page in enumerate(pages):
        best = {
            kind: tuple(
                page[f"best_{kind}_answer_{end}"] for end in ("start", "end")
            )
            for kind in ("long", "short")
        }
        predictions[f"p{i}"] = NQPrediction(
            best["long"],
            page["long_answer_score"],
            (best["short"],) if best["short"][0] >= 0 else (),
            page["short_answer_score"],
            ("none", "yes", "no")[page["best_yes_no"]],
        )
    return predictions


class EvaluationTest(tf.test.TestCase):
    def _score(self, model, logits, words, record, window, records):
        """What is predicted and measured, with batches of 16 windows.

        As when records are read for evaluation, the last batch is filled with
        examples of no weight.
        """
        rows = len(record)
        keys = record_keys(tf.constant([f"p{i}" for i in record])).numpy()
        values = {
            **logits,
            "words": words.astype(np.int32),
            "record": keys,
            "window": window,
            "weight": np.ones([rows], np.float32),
        }
        batches = []
        for start in range(0, rows + 1, 16):
            batch = {}
            for name, value in values.items():
                part = value[start : start + 16]
                fill = [[0, 16 - len(part)]] + [[0, 0]] * (part.ndim - 1)
                batch[name] = np.pad(part, fill)
            # What has no weight may be anything.
            score = batch["long_answer_start_logits"]
            score[batch["weight"] == 0, -1] = 1e4
            chosen = model.select_candidates(
                {name: tf.constant(batch[name]) for name in logits},
                {},
                {"words": tf.constant(batch["words"])},
            )
            kept = {x: batch[x] for x in ("record", "window", "weight")}
            batches.append(
                {**{x: y.numpy() for x, y in chosen.items()}, **kept}
            )
        with mock.patch.object(nq, "score", side_effect=nq.score) as score:
            measured = evaluation.score(TASK, model, _SCHEMA, batches, records)
        return score.call_args.args[0], measured

    def test_windows_in_any_order(self):
        """Spread over batches, they are put in order: the first of equals."""
        rng = np.random.default_rng(0)
        # More than are decoded at once.
        logits, words, record, candidates = random_batch(rng, pages=70)
        # So few values that windows are often as good as others.
        logits = {name: np.clip(x, -1, 1) for name, x in logits.items()}
        expected = _predictions(
            reference_pages(logits, words, record, candidates, max_words=9)
        )
        self.assertEqual(
            {"none", "yes", "no"}, {x.yes_no for x in expected.values()}
        )
        # Some are right, and one page has no window.
        gold = {
            name: NQGold(
                (x.long_answer if i % 3 else (3, 5),),
                (x.short_answers,),
                (x.yes_no,),
            )
            for i, (name, x) in enumerate(expected.items())
        }
        gold["p70"] = NQGold(((3, 5),), ((),), ("none",))
        records = [
            evaluation.StoredRecord(
                name,
                {
                    "candidate_starts": [x for x, _ in spans],
                    "candidate_ends": [x for _, x in spans],
                },
                gold[name],
            )
            for name, spans in zip(gold, [*candidates, []], strict=True)
        ]
        window = np.concatenate([np.arange(n) for n in np.bincount(record)])
        order = rng.permutation(len(record))
        predictions, measured = self._score(
            # The threshold is for those who ask the model, not for the script.
            TASK.make_model(options=NQOptions(1e3, max_short_answer_words=9)),
            {name: value[order] for name, value in logits.items()},
            *(x[order] for x in (words, record, window)),
            records,
        )
        self.assertEqual(expected, predictions)
        scores = metrics.evaluate(expected, gold, 1)
        self.assertEqual(list(scores.values()), list(measured.values()))
        self.assertBetween(measured["long_best_threshold_f1"], 0.1, 0.9)

    def test_pages_without_candidates_or_text(self):
        words = np.array([[-1, 3, 4, 5], [-1] * 4])
        nothing = {"candidate_starts": [], "candidate_ends": []}
        gold = NQGold(((3, 4),), ((),), ("none",))
        predictions, measured = self._score(
            TASK.make_model(),
            zero_logits(2, 4),
            words,
            np.arange(2),
            np.zeros([2], int),
            [
                evaluation.StoredRecord(name, nothing, gold)
                for name in ("p0", "p1")
            ],
        )
        self.assertEqual(
            NQPrediction((3, 4), 0.0, ((3, 4),), 0.0), predictions["p0"]
        )
        self.assertLess(predictions["p1"].long_score, -1e6)
        self.assertEqual(
            NQPrediction((-1, -1), 0.0, (), 0.0),
            dataclasses.replace(
                predictions["p1"], long_score=0.0, short_score=0.0
            ),
        )
        self.assertEqual(0.5, measured["long_best_threshold_recall"])


_WORDS = "jan in paris rome oslo where is here .".split()
# Two of four short answers have a higher score.
_OPTIONS = NQOptions(null_threshold=1.8, max_short_answer_words=5)


def _make_page(paragraphs: int, length: int = 11) -> NQRecord:
    """A page of paragraphs with a tag on both sides, each a candidate."""
    rng = np.random.default_rng([paragraphs, length, 0])
    tokens = rng.choice(_WORDS, [paragraphs, length]).tolist()
    for i, row in enumerate(tokens):
        row[0], row[-1] = "<P>", "</P>"
        row[i % (length - 2) + 1] = "Lives"  # Two tokens: live ##s.
    flat = tuple(token for row in tokens for token in row)
    return NQRecord(
        f"page_{paragraphs}",
        "where is jan",
        flat,
        tuple(token[0] == "<" for token in flat),
        tuple(
            Candidate(i * length, (i + 1) * length, True)
            for i in range(paragraphs)
        ),
    )


class ServingTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with tempfile.TemporaryDirectory() as directory:
            vocab_file = write_test_vocab(
                directory,
                " ".join([*_WORDS, "live ##s [unused102] [unused103]"]),
            )
            cls.writer = example_maker.of_task(
                TASK,
                NQPreprocessingConfig(
                    long_length=64,
                    global_length=24,
                    stride=32,
                    question_length=8,
                ),
                vocab_file,
            )
        cls.preprocessor = cls.writer.preprocessor
        task_model = TASK.make_model(options=_OPTIONS)
        cls.model = cls._make_model(task_model)
        module, _ = signatures_lib.make_serving_module(
            cls.model, cls.preprocessor, task_model
        )
        cls.signatures = module.signatures()
        cls.pages = [_make_page(n) for n in (2, 22, 10, 4)]

    @classmethod
    def _make_model(cls, task_model):
        """The head on what tokens and their neighbours are."""
        inputs = {
            name: tf.keras.Input([None], dtype="int32", name=name)
            for name in FEATURES
        }
        vocab_size = cls.preprocessor.tokenizer.vocab_size
        embedded = tf.keras.layers.Embedding(vocab_size, 16, name="embedding")(
            inputs["long_token_ids"]
        )
        convolution = tf.keras.layers.Conv1D(16, 5, padding="same", name="mix")
        head = task_model.head(EtcConfig.from_preset("tiny"))
        model = tf.keras.Model(
            inputs, head({"long_output": convolution(embedded)}, inputs)
        )
        randomize(model, seed=8)
        return model

    def _expected(self, page, apart=False):
        """The answers of a page, of all its windows or of each of them."""
        made = self.preprocessor(**NQPreprocessor.raw_batch([page]))
        logits = self.model(made.layout.features, training=False)
        owner = made.owner.numpy()
        candidates = [[(x.start, x.end) for x in page.candidates]]
        return reference_pages(
            {name: value.numpy() for name, value in logits.items()},
            made.context["words"].numpy().tolist(),
            np.arange(len(owner)) if apart else owner,
            candidates * (len(owner) if apart else 1),
            _OPTIONS.null_threshold,
            _OPTIONS.max_short_answer_words,
        )

    def _serve(self, records):
        """The answers to a request, of each record."""
        inputs = NQPreprocessor.raw_batch(records)
        outputs = self.signatures["serving_default"](
            **{name: tf.constant(x) for name, x in inputs.items()}
        )
        return [
            {name: value[i].numpy() for name, value in outputs.items()}
            for i in range(len(records))
        ]

    def _check(self, expected, answers):
        self.assertEqual(set(expected), set(answers) - {"tokens_cut"})
        for name, value in expected.items():
            self.assertAllClose(value, answers[name], 1e-4, 1e-3, name)

    def test_pages_of_several_windows(self):
        """A few windows at a time, of several pages; the last is alone."""
        # 12 tokens a paragraph; 64 - 3 - 3 = 58 fit into a window, and the next
        # one begins 32 after it: of 2, 22, 10 and 4 paragraphs there are
        # 1 + ceil(max(12 n - 58, 0) / 32) = 1, 8, 3 and 1 windows.
        self.assertEqual(1, 13 % self.preprocessor.rows_at_once)
        expected = [self._expected(page)[0] for page in self.pages]
        served = self._serve(self.pages)
        for answers, page in zip(expected, served, strict=True):
            self._check(answers, page)
        # The weights are such that answers differ, and some are not given.
        for kind, given in (("long", [0, 1, 1, 1]), ("short", [0, 1, 1, 0])):
            name = f"{kind}_answer_start"
            self.assertLen({x[f"best_{name}"] for x in expected}, 4)
            self.assertEqual(given, [x[name] >= 0 for x in expected])

    def test_pages_without_candidates_or_words(self):
        """Beside one that has them, and alone."""
        page = self.pages[2]
        bare = NQRecord("x", "", page.tokens, page.is_html, ())
        empty = NQRecord("y", "where", (), (), page.candidates)
        nothing = NQRecord("z", "", (), (), ())
        first, *others = self._serve([page, bare, empty, nothing])
        self._check(self._expected(page)[0], first)
        for answers in (*others, *self._serve([nothing])):
            for name, value in answers.items():
                if name.endswith(("_start", "_end")):
                    self.assertEqual(-1, value, name)
            self.assertLess(answers["long_answer_score"], -1e6)

    def test_stored_windows_have_answers_of_their_own(self):
        page = self.pages[2]
        with without_tracing():
            (written,) = encode_records(self.writer, [page], "predict")
        self.assertLen(written.examples, 3)
        outputs = self.signatures["serialized_examples"](
            examples=tf.constant(written.examples)
        )
        for i, answers in enumerate(self._expected(page, apart=True)):
            self._check(answers, {name: outputs[name][i] for name in answers})


if __name__ == "__main__":
    tf.test.main()
