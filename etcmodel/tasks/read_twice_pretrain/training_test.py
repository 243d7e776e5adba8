import json
import os
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.tasks.read_twice_pretrain.task import TASK
from etcmodel.training import trainer
from testing.models import shrink_experiment
from testing.pretraining import BLOCKS
from testing.pretraining import PRETRAINING_VOCAB
from testing.pretraining import SEGMENT_LENGTH
from testing.pretraining import SEGMENTS
from testing.tasks import run_cli
from testing.tasks import write_small_records

_NUM_DOCUMENTS = 80
_STEPS = 200
_TASK, _ = trainer.task_classes(TASK)


class PretrainTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.records = write_small_records(
            directory, _NUM_DOCUMENTS, "read_twice_pretrain"
        )

    def _params(self, examples=2):
        """Returns a tiny experiment with batches of `examples`."""
        return shrink_experiment(
            trainer.configure(TASK, **TASK.recipe),
            self.records,
            examples * BLOCKS,
            max_predictions_per_block=SEGMENT_LENGTH,
        )

    def test_memories_tell_masked_entities(self):
        """Evaluates with and without memories (ReadTwice paper, Table 4)."""
        directory = self.get_temp_dir()
        train = write_small_records(
            directory, 500, "read_twice_pretrain", seed=1
        )
        model_dir = os.path.join(directory, "run")
        config = "trainer.optimizer_config"
        overrides = {
            "task.train_data.input_path": train,
            "task.validation_data.input_path": self.records,
            "task.train_data.global_batch_size": 2 * BLOCKS,
            "task.validation_data.global_batch_size": 2 * BLOCKS,
            "task.model.encoder.preset": "tiny",
            "task.model.encoder.num_hidden_layers": 1,
            "task.model.encoder.hidden_dropout_prob": 0.0,
            "task.model.encoder.attention_probs_dropout_prob": 0.0,
            "task.max_predictions_per_block": SEGMENT_LENGTH,
            "trainer.train_steps": _STEPS,
            "trainer.steps_per_loop": _STEPS,
            "trainer.summary_interval": _STEPS,
            "trainer.checkpoint_interval": _STEPS,
            f"{config}.optimizer.type": "adamw",
            f"{config}.warmup.linear.warmup_steps": _STEPS // 10,
            f"{config}.learning_rate.polynomial.initial_learning_rate": 0.005,
        }
        self._run(
            "train",
            "--experiment=read_twice/pretrain",
            "--mode=train",
            # With another seed, training may need more steps.
            "--seed=1",
            f"--model_dir={model_dir}",
            "--params_override="
            + ",".join(f"{k}={v}" for k, v in overrides.items()),
        )
        results = {}
        for mode in ("doc", "block"):
            output = os.path.join(model_dir, f"{mode}.json")
            self._run(
                "evaluate",
                f"--model_dir={model_dir}",
                f"--output={output}",
                "--params_override="
                f"task.model.cross_block_attention_mode={mode}",
            )
            with open(output, encoding="utf-8") as file:
                results[mode] = json.load(file)
            # Other words are drawn from 20, so they cannot be predicted.
            self.assertLess(results[mode]["other_accuracy"], 0.15)
        # Without memories, entities are guessed: chance is 1 in 20.
        self.assertLess(results["block"]["entity_accuracy"], 0.2)
        self.assertGreater(results["doc"]["entity_accuracy"], 0.4)

    def _run(self, *arguments):
        code, _, err = run_cli(*arguments)
        self.assertEqual(0, code, err)

    def test_batches(self):
        params = self._params()
        task = _TASK(params.task)
        features, labels = next(iter(task.build_inputs(params.task.train_data)))
        self.assertEqual(
            [2 * BLOCKS, SEGMENT_LENGTH], list(features["token_ids"].shape)
        )
        ids = features["block_ids"].numpy()
        # Examples have whole documents, of three segments each.
        for number in set(ids.tolist()) - {0}:
            self.assertAllEqual(
                [1, 2, 3], features["block_pos"].numpy()[ids == number]
            )
        self.assertAllEqual(labels["is_multi"][:, 0], ids > 0)
        masked = features["token_ids"].numpy() == PRETRAINING_VOCAB.index(
            "[MASK]"
        )
        weights = labels["weights"].numpy()
        self.assertEqual(masked.sum(), weights.sum())
        rows = np.arange(2 * BLOCKS)[:, None]
        positions = features["masked_positions"].numpy()
        self.assertTrue(masked[rows, positions][weights > 0].all())
        # `is_entity` is 1 for masked mentions, 0 for other masked words.
        names = np.array(PRETRAINING_VOCAB)[labels["label_ids"]]
        is_entity = labels["is_entity"].numpy()
        for name, weight, entity in zip(
            names.ravel(), weights.ravel(), is_entity.ravel(), strict=True
        ):
            if weight:
                self.assertEqual("e" if entity else "w", name[0])

    def test_copies_of_a_document_are_different_documents(self):
        """Otherwise, one copy would reveal the masked words of the other."""
        params = self._params()
        params.task.train_data.global_batch_size = 40 * BLOCKS
        task = _TASK(params.task)
        features, _ = next(iter(task.build_inputs(params.task.train_data)))
        pairs = np.stack([features["block_ids"], features["block_pos"]], axis=1)
        pairs = pairs[pairs[:, 0] > 0]
        self.assertLen(np.unique(pairs, axis=0), len(pairs))

    def test_evaluation_reads_all_documents_once_with_equal_masks(self):
        params = self._params()
        params.task.validation_data.global_batch_size = 4 * BLOCKS
        task = _TASK(params.task)

        def read():
            return list(task.build_inputs(params.task.validation_data))

        first, second = read(), read()
        self.assertGreater(len(first), 1)
        ids, masked = [], []
        for batches in (first, second):
            # Document numbers start again in each batch.
            numbers = [x["block_ids"].numpy() for x, _ in batches]
            ids.append(
                np.concatenate(
                    [x + 10_000 * i * (x > 0) for i, x in enumerate(numbers)]
                )
            )
            masked.append(
                sorted(
                    tuple(row)
                    for x, _ in batches
                    for row in x["token_ids"].numpy()
                )
            )
        self.assertEqual(masked[0], masked[1])
        numbers, counts = np.unique(ids[0][ids[0] > 0], return_counts=True)
        self.assertLen(numbers, 80)
        self.assertAllEqual(counts, [SEGMENTS] * 80)

    def test_loss_by_hand(self):
        params = self._params()
        params.task.coreference_weight = 0.5
        task = _TASK(params.task)
        logits = np.array([[[2.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [3.0, 0.0]]])
        labels = {
            "label_ids": tf.constant([[0, 0], [1, 1]]),
            "weights": tf.constant([[1.0, 1.0], [1.0, 0.0]]),
            "is_entity": tf.constant([[1.0, 0.0], [0.0, 0.0]]),
            # The first segment's document has several segments.
            "is_multi": tf.constant([[1.0], [0.0]]),
        }
        outputs = {
            "logits": tf.constant(logits, tf.float32),
            "coreference_losses": tf.constant([0.25, 9.0, 0.75]),
            "is_coreferent": tf.constant([1.0, 0.0, 1.0]),
        }
        cross_entropy = [
            np.log(1 + np.exp(-2.0)),
            np.log(1 + np.exp(1.0)),
            np.log(2.0),
        ]
        expected = (np.mean(cross_entropy) + 0.5 * 0.5) / 1.5
        self.assertAllClose(
            expected, task.build_losses(labels, outputs), 1e-4, 1e-4
        )
        metrics = task.build_metrics()
        task.process_metrics(metrics, labels, outputs)
        results = {metric.name: metric.result() for metric in metrics}
        self.assertAllClose(
            {
                "mlm_loss": np.mean(cross_entropy),
                "mlm_loss_multi_blocks": np.mean(cross_entropy[:2]),
                "mlm_loss_single_blocks": cross_entropy[2],
                "mlm_accuracy": 1 / 3,
                "mlm_accuracy_multi_blocks": 1 / 2,
                "mlm_accuracy_single_blocks": 0.0,
                "entity_accuracy": 1.0,
                "entity_accuracy_multi_blocks": 1.0,
                "entity_accuracy_single_blocks": 0.0,
                "other_accuracy": 0.0,
                "other_accuracy_multi_blocks": 0.0,
                "other_accuracy_single_blocks": 0.0,
                "coreference_loss": 0.5,
            },
            results,
        )

    def test_configurations_that_do_not_fit(self):
        params = self._params()
        task = _TASK(params.task)
        params.task.train_data.global_batch_size = BLOCKS + 1
        with self.assertRaisesRegex(UserError, "multiple of 24"):
            task.build_inputs(params.task.train_data)
        params.task.model.encoder.max_seq_length = 5
        with self.assertRaisesRegex(UserError, "segments of 6 tokens"):
            task.build_model()
        params.task.model.encoder.max_seq_length = 6
        params.task.model.encoder.summary_mode = "cls"
        with self.assertRaisesRegex(UserError, "needs memories of entity"):
            task.build_model()
        params.task.model.encoder.summary_mode = "entity"
        params.task.model.cross_block_attention_mode = "docs"
        with self.assertRaisesRegex(UserError, "'docs'. Expected one of 'doc'"):
            _TASK(params.task).build_model()


if __name__ == "__main__":
    tf.test.main()
