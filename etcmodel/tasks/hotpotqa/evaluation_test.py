import json
import os
import shutil
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.hotpotqa import metrics
from etcmodel.datasets.hotpotqa import records as records_lib
from etcmodel.models import EtcConfig
from etcmodel.tasks import task_testing
from etcmodel.tasks.hotpotqa import decoding
from etcmodel.tasks.hotpotqa import evaluation
from etcmodel.tasks.hotpotqa import experiment
from etcmodel.tasks.hotpotqa import model as model_lib
from etcmodel.tasks.hotpotqa import pipeline as pipeline_lib
from etcmodel.tasks.model_testing import set_random_weights
from etcmodel.tasks.model_testing import shrink_experiment
from etcmodel.tasks.model_testing import small_records

_LONG, _GLOBAL = 64, 32


def _gold():
    """Two records: a title and two sentences; two titles with one each."""
    places = (("Bâle", -1), ("Bâle", 0), ("Bâle", 1))
    first = evaluation.GoldRecord(
        id="first",
        answer="the Émile X.",
        facts=(("Bâle", 1),),
        segments=("Bâle".encode(), b"A town.", " né: Émile X".encode()),
        places=places,
    )
    second = evaluation.GoldRecord(
        id="second",
        answer="yes",
        facts=(("Q", 0), ("R", 0)),
        segments=(b"Q", b"One two.", b"R", b"Three."),
        places=(("Q", -1), ("Q", 0), ("R", -1), ("R", 0)),
    )
    return {(1, 2): first, (3, 4): second}


def _batch(answer_types=(0, 1, 0), weights=(1.0, 1.0, 0.0)):
    """Predictions for both, and for a padding example.

    The first one's answer is right from the threshold 0.3 on; it is "town"
    below. Its supporting facts are right from 0.6 to 0.8 only.
    """
    thresholds = len(evaluation.THRESHOLDS)
    segment = np.zeros([3, thresholds], np.int32)
    start, end = np.zeros_like(segment), np.zeros_like(segment)
    segment[0], start[0], end[0] = 2, 6, 14
    segment[0, :3], start[0, :3], end[0, :3] = 1, 2, 6
    return {
        "record": np.array([[1, 2], [3, 4], [0, 0]], np.int32),
        "weight": np.array(weights, np.float32),
        "answer_type": np.array(answer_types, np.int32),
        "global_segments": np.array(
            [
                [-1, -1, 0, 1, 2, -1, -1],
                [-1, -1, 0, 1, -1, 2, 3],
                [0, 0, 0, 0, 0, 0, 0],
            ],
            np.int32,
        ),
        "fact_probabilities": np.array(
            [
                [-1.0, -1.0, 0.95, 0.55, 0.85, -1.0, -1.0],
                [-1.0, -1.0, 0.0, 0.9, -1.0, 0.0, 0.9],
                [0.9] * 7,
            ],
            np.float32,
        ),
        "segment": segment,
        "start": start,
        "end": end,
    }


class ScoreTest(tf.test.TestCase):
    def test_metrics_at_the_best_threshold(self):
        """One fact of two, and an answer with a word too many."""
        batch = _batch()
        batch["fact_probabilities"][1, 6] = 0.2
        batch["start"][0] = 1
        result = evaluation.score([batch], _gold())
        # "né Émile X" has a precision of 2/3 and a recall of 1; and, above
        # 0.5, all facts are right but that one.
        self.assertAllClose(
            {
                "em": 0.5,
                "f1": (0.8 + 1.0) / 2,
                "prec": (2 / 3 + 1.0) / 2,
                "recall": 1.0,
                "sp_em": 0.5,
                "sp_f1": (1.0 + 2 / 3) / 2,
                "sp_prec": 1.0,
                "sp_recall": (1.0 + 0.5) / 2,
                "joint_em": 0.0,
                "joint_f1": (0.8 + 2 / 3) / 2,
                "joint_prec": (2 / 3 + 1.0) / 2,
                "joint_recall": (1.0 + 0.5) / 2,
                "supporting_fact_threshold": 0.6,
            },
            result,
        )

    def test_thresholds(self):
        """Those of the paper; a fact has at least that probability."""
        self.assertAllClose(np.linspace(0, 1, 11), evaluation.THRESHOLDS)
        for threshold in (0.3, 0.6, 0.7, 1.0):
            batch = _batch()
            facts = batch["fact_probabilities"]
            facts[0, 3], facts[0, 4] = threshold - 0.001, threshold
            facts[1, [3, 6]] = 1.0
            result = evaluation.score([batch], _gold())
            self.assertAllClose(1.0, result["joint_em"])
            self.assertEqual(threshold, result["supporting_fact_threshold"])

    def test_padding_and_missing_records(self):
        expected = evaluation.score([_batch()], _gold())
        self.assertAllClose(1.0, expected["joint_em"])
        # Were it real, there would be no such record.
        with self.assertRaises(KeyError):
            evaluation.score([_batch(weights=(1.0, 1.0, 1.0))], _gold())
        one = _batch(weights=(1.0, 0.0, 0.0))
        other = _batch(weights=(0.0, 1.0, 0.0))
        self.assertAllClose(expected, evaluation.score([one, other], _gold()))
        # Records without predictions count.
        self.assertAllClose(0.5, evaluation.score([one], _gold())["joint_em"])

    def test_answer_types(self):
        for types, em in (((1, 1, 0), 0.5), ((0, 2, 0), 0.5), ((2, 2, 0), 0)):
            result = evaluation.score([_batch(types)], _gold())
            self.assertAllClose(em, result["em"])
        # Nor is no answer a right one.
        batch = _batch()
        batch["segment"][0] = -1
        self.assertAllClose(0.5, evaluation.score([batch], _gold())["em"])


def _write_records(directory, records):
    """Preprocesses records; gives the data file and the TFRecords' folder."""
    path = os.path.join(directory, "some.json")
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(records, stream)
    vocab_file = task_testing.write_test_vocab(
        directory, "é jan is he in paris rome oslo bonn where ? . a b c d e"
    )
    output = os.path.join(directory, "tfrecords")
    with task_testing.without_tracing():
        code, _, err = task_testing.run_cli(
            "preprocess",
            "--task=hotpotqa",
            f"--input={path}",
            f"--vocab_file={vocab_file}",
            f"--output_dir={output}",
            "--split=dev",
            f"--long_length={_LONG}",
            f"--global_length={_GLOBAL}",
            "--num_shards=2",
        )
    assert not code, err
    return path, vocab_file, output


def _record(record_id, context, answer, facts, question="Where?"):
    return {
        "_id": record_id,
        "question": question,
        "context": context,
        "answer": answer,
        "supporting_facts": facts,
    }


class ReadGoldTest(tf.test.TestCase):
    def test_what_the_pipeline_wrote(self):
        records = [
            _record(
                "Ä",
                [["É b", ["Jan.", " Où? à Paris."]], ["Oslo", ["c d"]]],
                "à Paris",
                [["É b", 1], ["Oslo", 0], ["Nowhere", 7]],
            ),
            _record(
                "b",
                # Without a title; without sentences; control characters.
                [["", ["a", "", "c"]], ["d", []], ["A\u0001b", ["e\u0000e"]]],
                "yes",
                [["A\u0001b", 0]],
            ),
        ]
        *_, output = _write_records(self.get_temp_dir(), records)
        gold = evaluation.read_gold(output)
        self.assertLen(gold, 2)
        second, first = sorted(gold.values(), key=lambda x: x.id)
        self.assertEqual(
            evaluation.GoldRecord(
                id="Ä",
                answer="à Paris",
                facts=(("É b", 1), ("Oslo", 0), ("Nowhere", 7)),
                segments=tuple(
                    text.encode()
                    for text in ("É b", "Jan.", " Où? à Paris.", "Oslo", "c d")
                ),
                places=(
                    *(("É b", -1), ("É b", 0), ("É b", 1)),
                    *(("Oslo", -1), ("Oslo", 0)),
                ),
            ),
            first,
        )
        self.assertEqual("yes", second.answer)
        self.assertEqual(
            (b"", b"a", b"", b"c", b"d", b"A b", b"e e"), second.segments
        )
        self.assertEqual((("", 2), ("d", -1)), second.places[3:5])
        # A fact can be found again, whatever becomes of its title.
        self.assertIn(second.facts[0], second.places)

    def test_keys_are_those_of_the_device(self):
        output = small_records("hotpotqa")
        gold = evaluation.read_gold(output)
        self.assertLen(gold, 9)
        keys = [
            tuple(key)
            for _, labels in _batches(output)
            for key, weight in zip(
                labels["record"].numpy().tolist(), labels["weight"], strict=True
            )
            if weight
        ]
        self.assertCountEqual(gold, keys)


def _batches(path):
    """Features and labels in batches; the last one is filled up."""
    params = shrink_experiment(experiment.hotpotqa_experiment(), path)
    task = experiment.HotpotQATask(params.task)
    return task.build_inputs(params.task.validation_data)


class SameAsPredictTest(tf.test.TestCase, parameterized.TestCase):
    """Evaluation answers what an exported model answers from raw text."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        rng = np.random.default_rng(7)
        words = ["Jan", "is", "É", "Rome", "in", "a", "b", "c.", "d", "Z\u00a0"]

        def text(most):
            return " ".join(rng.choice(words, size=rng.integers(0, most)))

        def record(i):
            # The last one's text does not fit.
            paragraphs = 12 if i == 8 else int(rng.integers(1, 4))
            context = [
                [
                    f"T{j} " + text(3),
                    ["Jan."] + [" " + text(6) for _ in range(j % 3)],
                ]
                for j in range(paragraphs)
            ]
            return _record(f"id {i}", context, "Jan", [[context[0][0], 0]])

        path, vocab_file, cls.output = _write_records(
            directory, [record(i) for i in range(9)]
        )
        cls.records = list(records_lib.FORMAT.read(path))
        cls.pipeline = pipeline_lib.HotpotQAPipeline()
        config = cls.pipeline.feature_config(
            {"long_length": _LONG, "global_length": _GLOBAL}
        )
        cls.encoder = cls.pipeline.record_encoder(config, vocab_file)

    def _model(self, encoding):
        model = model_lib.build_hotpotqa_model(
            EtcConfig.from_preset(
                "tiny", vocab_size=200, num_hidden_layers=1, local_radius=8
            ),
            encoding,
            long_length=_LONG,
            global_length=_GLOBAL,
        )
        # Far larger weights than at the start, for differing answers.
        set_random_weights(model, 0.2, seed=3)
        # Probabilities of supporting facts between all of the thresholds.
        layout, context = self.encoder.build(self.records)
        logits = model(layout.features)["supporting_fact_logits"]
        logits = logits.numpy()[context.global_segments >= 0]
        layer = model.get_layer("output_layer").supporting_facts
        scale = 1.5 / logits.std()
        layer.kernel.assign(scale * layer.kernel)
        layer.bias.assign(scale * (layer.bias - logits.mean()))
        return model

    @parameterized.parameters("span", "bio")
    def test_answers_and_facts(self, encoding):
        model = self._model(encoding)
        batches = []
        for features, labels in _batches(self.output):
            predictions = evaluation.predict_for_thresholds(
                model(features), labels, max_answer_length=4
            )
            batches.append({k: np.array(v) for k, v in predictions.items()})
        layout, context = self.encoder.build(self.records)
        outputs = model(layout.features)
        shape = self.pipeline.serving_inputs(self.records)["sentences"].shape
        predicted = {}
        for threshold in evaluation.THRESHOLDS:
            answers = decoding.decode_answers(
                outputs,
                layout.features["long_token_type_ids"],
                layout.features["long_sentence_ids"],
                context,
                threshold,
                max_answer_length=4,
                shape=tf.constant(shape[1:]),
            )
            found = predicted[threshold] = {}
            self.pipeline.collect(
                self.records,
                {name: x.numpy() for name, x in answers.items()},
                found,
                {"supporting_fact_threshold": threshold},
            )
        # There is something to be told apart.
        self.assertGreater(len({str(x) for x in predicted.values()}), 5)
        read = evaluation.read_gold(self.output)
        for threshold, right in predicted.items():
            # As if what is predicted at this threshold were right.
            gold = {
                key: x._replace(answer=right[x.id][0], facts=right[x.id][1])
                for key, x in read.items()
            }
            results = {
                other: metrics.evaluate(
                    {key: answer for key, (answer, _) in found.items()},
                    {key: facts for key, (_, facts) in found.items()},
                    right,
                )
                for other, found in predicted.items()
            }
            best = metrics.best_threshold(results)
            self.assertAllClose(
                {**results[best], "supporting_fact_threshold": best},
                evaluation.score(batches, gold),
            )
            if threshold < 0.5:
                self.assertAllClose(1.0, results[threshold]["sp_em"])


if __name__ == "__main__":
    tf.test.main()
