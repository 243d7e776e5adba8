import os
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.tasks.pretrain import model as model_lib
from etcmodel.tasks.pretrain.task import TASK
from etcmodel.training import trainer
from testing.models import shrink_experiment
from testing.pretraining import PRETRAINING_VOCAB
from testing.small_berts import make_bert
from testing.tasks import run_cli
from testing.tasks import write_small_records

_MASK = PRETRAINING_VOCAB.index("[MASK]")
_CPC_MASK = PRETRAINING_VOCAB.index("[unused1]")
_PERIOD = len(PRETRAINING_VOCAB)
_TASK, _CONFIG = trainer.task_classes(TASK)


def _experiment():
    return trainer.configure(TASK, **TASK.recipe)


class LayOutTest(tf.test.TestCase):
    def test_by_hand(self):
        # The first example has two texts, the second has one.
        stored = {
            "token_ids": [[5, 6, 7, 8, 9], [4, 3]],
            "is_continuation": [[0, 1, 0, 0, 1], [0, 1]],
            "sentence_lengths": [[2, 1, 2], [2]],
            "text_lengths": [[2, 1], [1]],
        }
        features, is_continuation = model_lib.lay_out(
            {
                name: tf.ragged.constant(x, row_splits_dtype=tf.int64)
                for name, x in stored.items()
            },
            6,
            4,
            1,
        )
        expected = {
            "long_token_ids": [[5, 6, 7, 8, 9, 0], [4, 3, 0, 0, 0, 0]],
            "sentence_ids": [[0, 0, 1, 2, 2, -1], [0, 0, -1, -1, -1, -1]],
            "long_breakpoints": [[0, 0, 1, 0, 1, 0], [0, 1, 0, 0, 0, 0]],
            "global_token_ids": [[1, 1, 1, 0], [1, 0, 0, 0]],
            "global_breakpoints": [[0, 1, 1, 0], [1, 0, 0, 0]],
        }
        self.assertEqual(set(expected), set(features))
        for name, value in expected.items():
            self.assertAllEqual(value, features[name], name)
            self.assertEqual(tf.int32, features[name].dtype)
        self.assertAllEqual(
            [[0, 1, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0]], is_continuation
        )
        self.assertEqual([2, 6], np.shape(is_continuation))


class PretrainTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.records = write_small_records(directory, 19, "pretrain")

    def _params(self, batch_size=4, **options):
        return shrink_experiment(
            _experiment(), self.records, batch_size, **options
        )

    def _batches(self, params, is_training=False):
        task = _TASK(params.task)
        data = params.task.train_data
        if not is_training:
            data = params.task.validation_data
        return task, task.build_inputs(data)

    def test_batches(self):
        """Each sentence has four tokens, the last of which is a period."""
        _, data = self._batches(self._params(cpc_fraction_to_mask=0.25))
        for features, labels in data:
            features = {k: x.numpy() for k, x in features.items()}
            labels = {k: x.numpy() for k, x in labels.items()}
            tokens, owners = (
                features["long_token_ids"],
                features["sentence_ids"],
            )
            is_token = owners >= 0
            for row in range(4):
                hidden = np.unique(owners[row][tokens[row] == _CPC_MASK])
                # A quarter of 14 or 7 sentences is masked.
                number = len(np.unique(owners[row][is_token[row]]))
                if not tokens[row].any():
                    continue  # Padding of the last batch.
                self.assertLen(hidden, round(number / 4 + 1e-3))
                weights = features["taken_weights"][row]
                self.assertAllEqual(
                    hidden, features["taken_sentences"][row][weights > 0]
                )
                taken = features["taken_token_ids"][row]
                self.assertEqual(4 * len(hidden), np.count_nonzero(taken))
                self.assertAllEqual(
                    [_PERIOD] * len(hidden), taken[3 : 4 * len(hidden) : 4]
                )
                weights = labels["weights"][row] > 0
                places = features["masked_positions"][row][weights]
                self.assertEmpty(set(owners[row][places]) & set(hidden))
                shown = tokens[row][places]
                given = labels["label_ids"][row][weights]
                # Targets that are not masked are unchanged or replaced.
                self.assertGreaterEqual(len(shown), np.sum(shown == _MASK))
                self.assertNotIn(_MASK, given)

    def test_training_masks_change(self):
        params = self._params()
        params.task.train_data.shuffle_buffer_size = 1
        params.task.train_data.global_batch_size = 10
        _, data = self._batches(params, is_training=True)
        # The batch size covers all ten examples.
        first, second = (x["long_token_ids"].numpy() for x, _ in data.take(2))
        texts = [
            {tuple(np.where(row == _CPC_MASK)[0]) for row in batch}
            for batch in (first, second)
        ]
        self.assertNotEqual(texts[0], texts[1])

    @parameterized.parameters(3, 19)
    def test_validation_masks_depend_on_the_example(self, batch_size):
        def read(size):
            _, data = self._batches(self._params(size))
            rows = [
                tuple(row)
                for features, _ in data
                for row in features["long_token_ids"].numpy()
                if row.any()
            ]
            return sorted(rows)

        expected = read(4)
        self.assertLen(expected, 10)
        self.assertEqual(expected, read(batch_size))

    def test_loss_by_hand(self):
        params = self._params(mlm_weight=0.6, cpc_weight=0.3)
        task = _TASK(params.task)
        labels = {
            "label_ids": tf.constant([[0, 0], [1, 1]]),
            "weights": tf.constant([[1.0, 1.0], [1.0, 0.0]]),
            "sentence_weights": tf.constant([[1.0, 0.0], [1.0, 0.0]]),
        }
        outputs = {
            "logits": tf.constant(
                [[[2.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [3.0, 0.0]]]
            ),
            "cpc_losses": tf.constant([0.25, 9.0, 0.75, 0.0]),
            "cpc_is_correct": tf.constant([1.0, 1.0, 0.0, 0.0]),
            "cpc_chance": tf.constant([0.5, 0.0, 0.5, 0.0]),
        }
        mlm = np.mean(
            [np.log(1 + np.exp(-2.0)), np.log(1 + np.exp(1.0)), np.log(2.0)]
        )
        expected = (0.6 * mlm + 0.3 * 0.5) / 0.9
        self.assertAllClose(
            expected, task.build_losses(labels, outputs), 1e-4, 1e-4
        )
        metrics = task.build_metrics()
        task.process_metrics(metrics, labels, outputs)
        self.assertAllClose(
            {
                "mlm_loss": mlm,
                "mlm_accuracy": 1 / 3,
                "cpc_loss": 0.5,
                "cpc_accuracy": 0.5,
                "cpc_chance": 0.5,
            },
            {metric.name: metric.result() for metric in metrics},
        )

    @parameterized.parameters(
        ("mlm_weight", "cpc_loss", {"masked_positions"}),
        ("cpc_weight", "mlm_loss", {"taken_owners"}),
    )
    def test_either_loss_can_be_off(self, name, left, gone):
        task, data = self._batches(self._params(**{name: 0.0}))
        features, labels = next(iter(data))
        self.assertEmpty(gone & set(features))
        if name == "cpc_weight":
            self.assertNotIn(_CPC_MASK, features["long_token_ids"].numpy())
        outputs = task.build_model()(features)
        values, weights = task.task_model.terms(outputs, labels)[left]
        self.assertAllClose(
            tf.reduce_sum(values * weights) / tf.reduce_sum(weights),
            task.build_losses(labels, outputs),
            1e-4,
        )
        names = [x.name for x in task.build_metrics()]
        self.assertIn(left, names)
        self.assertNotIn(name.replace("weight", "loss"), names)

    def test_questions_are_only_configured_for_fine_tuning(self):
        params = self._params()
        params.task.model.encoder.override(
            {
                "absolute_positions": "paragraph",
                "max_absolute_position_embeddings": 8,
                "question_words_in_global": True,
            }
        )
        model = _TASK(params.task).build_model()
        self.assertFalse(model.encoder.config.question_words_in_global)
        self.assertTrue(params.task.model.encoder.question_words_in_global)

    def test_starts_from_a_lifted_head(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        source = os.path.join(folder, "bert")
        os.mkdir(source)
        _, weights = make_bert(source, head=True)
        lifted, records = (
            os.path.join(folder, x) for x in ("lifted", "records")
        )
        text = os.path.join(folder, "text.txt")
        with open(text, "w", encoding="utf-8") as stream:
            stream.write("one one . " * 9)
        for arguments in (
            ["lift", f"--from={source}", f"--output_dir={lifted}"],
            [
                "preprocess",
                "--task=pretrain",
                f"--input={text}",
                f"--vocab_file={lifted}/vocab.txt",
                f"--output_dir={records}",
                "--min_sentences=1",
                "--long_length=8",
                "--global_length=4",
            ],
        ):
            code, _, err = run_cli(*arguments)
            self.assertEqual((0, ""), (code, err))
        params = _experiment().task
        params.train_data.input_path = records
        params.init_checkpoint = lifted
        params.model.encoder.config_file = f"{lifted}/etc_config.json"
        task = _TASK(params)
        model = task.build_model()
        before = model.contrast.get_weights()
        task.initialize(model)
        self.assertAllEqual(
            weights["mlm.dense.kernel"], model.head.dense.kernel
        )
        self.assertAllEqual(weights["mlm.bias"], model.head.output_bias)
        self.assertAllEqual(
            weights["mlm.LayerNorm.gamma"], model.head.layer_norm.gamma
        )
        self.assertAllEqual(before, model.contrast.get_weights())

    def test_impossible_options(self):
        params = self._params()
        for name, value, message in (
            ("mlm_fraction_to_mask", 15.0, "15.0, but must be from 0 to 1"),
            ("cpc_fraction_to_mask", -0.1, "must be from 0 to 1"),
            ("cpc_weight", -1.0, "must be at least 0"),
        ):
            with self.assertRaisesRegex(UserError, f"task.{name}.*{message}"):
                _TASK(params.task.replace(**{name: value}))
        with self.assertRaisesRegex(UserError, "All loss weights are 0"):
            _TASK(params.task.replace(cpc_weight=0.0, mlm_weight=0.0))
        with self.assertRaisesRegex(UserError, "config.json is missing"):
            _TASK(_CONFIG())
        params.task.model.encoder.relative_vocab_size = 5
        with self.assertRaisesRegex(UserError, "relative_vocab_size"):
            _TASK(params.task).build_model()


if __name__ == "__main__":
    tf.test.main()
