import dataclasses
import json
import tempfile

import numpy as np
import tensorflow as tf

from etcmodel.datasets.nq import metrics
from etcmodel.datasets.nq.metrics import NQGold
from etcmodel.datasets.nq.metrics import NQPrediction
from etcmodel.datasets.nq.records import NQRecord
from etcmodel.tasks import tfrecords
from etcmodel.tasks.nq import evaluation
from etcmodel.tasks.nq.decoding_test import decode
from etcmodel.tasks.nq.decoding_test import random_batch
from etcmodel.tasks.nq.decoding_test import zero_logits
from etcmodel.tasks.nq.pipeline import NQPipeline
from etcmodel.tasks.record_keys import record_keys
from etcmodel.tasks.task_testing import write_small_nq
from etcmodel.tasks.task_testing import write_small_records


def _gold(long, short=(), yes_no="none"):
    """What one annotator answered."""
    return NQGold((long,), (short,), (yes_no,))


def make_pages(candidates, gold=None):
    """Gold pages with the ids "p0", "p1", ...; see `read_gold`.

    Args:
        candidates: for each page a list of pairs.
        gold: for each page the answers.
    """
    ids = [f"p{i}" for i in range(len(candidates))]
    gold = gold or [_gold((-1, -1))] * len(ids)
    keys = record_keys(tf.constant(ids)).numpy().tolist()
    return {
        tuple(key): evaluation.GoldPage(
            name, answers, np.array(spans, np.int32).reshape(-1, 2)
        )
        for key, name, answers, spans in zip(
            keys, ids, gold, candidates, strict=True
        )
    }


def make_batches(logits, words, record, size, max_words=38):
    """What `predict_windows` makes of windows, `size` of them at a time.

    As when records are read for evaluation, the last batch is filled with
    zeros, and one of zeros follows.
    """
    rows = len(record)
    fill = size - rows % size + size
    keys = record_keys(tf.constant([f"p{i}" for i in record])).numpy()

    def filled(value):
        return np.pad(value, [[0, fill]] + [[0, 0]] * (value.ndim - 1))

    outputs = {name: filled(value) for name, value in logits.items()}
    labels = {
        "record": filled(keys),
        "weight": filled(np.ones([rows], np.float32)),
        "words": filled(words.astype(np.int32)),
    }
    # A row of padding may hold anything.
    outputs["long_answer_start_logits"][rows:, -1] = 1e4
    batches = []
    for start in range(0, rows + fill - size + 1, size):
        outputs_of_batch, labels_of_batch = (
            {
                name: tf.constant(x[start : start + size])
                for name, x in values.items()
            }
            for values in (outputs, labels)
        )
        made = evaluation.predict_windows(
            outputs_of_batch, labels_of_batch, max_words
        )
        batches.append({name: x.numpy() for name, x in made.items()})
    return batches


class EvaluationTest(tf.test.TestCase):
    def test_equals_the_answers_of_exported_models(self):
        """Which decode all windows of a page at once."""
        seen = set()
        for seed in range(5):
            rng = np.random.default_rng(seed)
            logits, words, record, candidates = random_batch(rng)
            outputs = decode(logits, words, record, candidates, max_words=9)
            outputs = {name: np.array(x) for name, x in outputs.items()}
            ids = [f"p{i}" for i in range(len(candidates))]
            records = [NQRecord(x, "", (), (), ()) for x in ids]
            expected = {}
            NQPipeline().collect(records, outputs, expected, {})
            # A page more, of which nothing is read: it is not answered.
            right = [
                (x.long_answer, x.short_answers) for x in expected.values()
            ]
            gold = {
                name: _gold(*(x if rng.random() < 0.5 else right[0]))
                for name, x in zip(ids, right, strict=True)
            }
            gold["p4"] = _gold((3, 5))
            pages = make_pages([*candidates, [(3, 5)]], list(gold.values()))
            scores = metrics.evaluate(expected, gold, 1)
            for size in (1, 3, len(record)):
                batches = make_batches(logits, words, record, size, 9)
                self.assertEqual(
                    expected, evaluation.predict_pages(batches, pages)
                )
                named = evaluation.score(batches, pages)
                self.assertEqual(list(scores.values()), list(named.values()))
            seen.update(x.yes_no for x in expected.values())
            self.assertGreater(named["long_best_threshold_f1"], 0)
            self.assertLess(named["long_best_threshold_recall"], 1)
        self.assertEqual({"none", "yes", "no"}, seen)
        self.assertLen(named, 21)
        self.assertContainsSubset(
            {
                *("long_best_threshold_f1", "long_best_threshold"),
                *("short_recall_at_precision_0.9", "average_best_threshold_f1"),
            },
            named,
        )
        for name in named:
            self.assertNotRegex(name, "[->=]")

    def test_pages_without_candidates_or_text(self):
        logits = zero_logits(3, 4)
        words = np.array([[-1, 3, 4, 5], [-1] * 4, [-1] * 4])
        batches = make_batches(logits, words, np.arange(3), 2)
        nothing = NQPrediction((-1, -1), 0.0, (), 0.0)
        for candidates in ([[], [], [(0, 2)]], [[], [], []]):
            predicted = evaluation.predict_pages(
                batches, make_pages(candidates)
            )
            self.assertEqual(
                NQPrediction((3, 4), 0.0, ((3, 4),), 0.0), predicted["p0"]
            )
            for name in ("p1", "p2"):
                prediction = dataclasses.replace(
                    predicted[name], long_score=0.0, short_score=0.0
                )
                self.assertEqual(nothing, prediction)

    def test_graph_code(self):
        logits, words, record, _ = random_batch(np.random.default_rng(1))
        (expected, *_) = make_batches(logits, words, record, len(record))

        @tf.function(jit_compile=True)
        def predict(outputs, labels):
            return evaluation.predict_windows(outputs, labels, 38)

        made = predict(
            {name: tf.constant(value) for name, value in logits.items()},
            {
                "record": tf.constant(expected["record"]),
                "weight": tf.ones([len(record)]),
                "words": tf.constant(words, tf.int32),
            },
        )
        self.assertEqual(set(expected), set(made))
        for name, value in expected.items():
            self.assertAllEqual(value, made[name])


class ReadGoldTest(tf.test.TestCase):
    def test_what_preprocess_wrote(self):
        with tempfile.TemporaryDirectory() as directory:
            input_path, _ = write_small_nq(directory, 9)
            with open(input_path, encoding="utf-8") as stream:
                records = [json.loads(line) for line in stream]
            records_dir = write_small_records(directory, 9, "nq")
            pages = evaluation.read_gold(records_dir)
            windows = [name for name, _ in tfrecords.read_examples(records_dir)]
        self.assertGreater(len(windows), len(set(windows)))
        self.assertLen(pages, 9)
        keys = record_keys(tf.constant([str(i) for i in range(9)]))
        for record, key in zip(records, keys.numpy().tolist(), strict=True):
            page = pages[tuple(key)]
            self.assertEqual(str(record["example_id"]), page.id)
            (annotation,) = record["annotations"]
            span = annotation["long_answer"]
            self.assertEqual(
                _gold(
                    (span["start_token"], span["end_token"]),
                    tuple(
                        (x["start_token"], x["end_token"])
                        for x in annotation["short_answers"]
                    ),
                    annotation["yes_no_answer"].lower(),
                ),
                page.gold,
            )
            self.assertAllEqual(
                [
                    (x["start_token"], x["end_token"])
                    for x in record["long_answer_candidates"]
                ],
                page.candidates,
            )
        kinds = {page.gold.yes_no for page in pages.values()}
        self.assertEqual({("none",), ("yes",), ("no",)}, kinds)


if __name__ == "__main__":
    tf.test.main()
