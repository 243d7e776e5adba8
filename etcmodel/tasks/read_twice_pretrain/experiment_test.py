import json
import os
import shutil
import tempfile
import unittest

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.experiment_lib_test import KERAS_2
from etcmodel.tasks.task_testing import run_cli
from etcmodel.testing import call_in_fresh_process
from etcmodel.testing import two_device_strategy

if KERAS_2:
    from official.core import exp_factory
    from official.core import train_lib

    from etcmodel.tasks.errors import UserError
    from etcmodel.tasks.read_twice_pretrain import experiment

_RESERVED = (
    "[PAD] [unused0] [unused1] [unused2] [unused3] [unused4] [UNK] [CLS] [SEP] "
    "[MASK]"
).split()
_ENTITIES = [f"e{i}" for i in range(20)]
_WORDS = [f"w{i}" for i in range(20)]
_MASK = _RESERVED.index("[MASK]")
# A segment is the CLS and five words; a document has three.
_LENGTH, _SEGMENTS, _BLOCKS = 6, 3, 24


def make_documents(number, seed):
    """Documents with one entity each, once in every segment.

    All other words are noise. So a masked mention can be known from another
    segment of its document, and from nothing else.
    """
    rng = np.random.default_rng(seed)
    documents = []
    for i in range(number):
        entity = str(rng.choice(_ENTITIES))
        words, mentions = [], []
        for _ in range(_SEGMENTS):
            segment = rng.choice(_WORDS, _LENGTH - 1).tolist()
            segment[rng.integers(_LENGTH - 1)] = entity
            words.extend(segment)
        start = 0
        for word in words:
            if word == entity:
                end = start + len(word)
                mentions.append({"start": start, "end": end, "entity": entity})
            start += len(word) + 1
        text = " ".join(words)
        documents.append({"id": str(i), "text": text, "mentions": mentions})
    return documents


def small_experiment(root, name="read_twice/pretrain"):
    """An experiment with a tiny model on the small records."""
    params = exp_factory.get_exp_config(name)
    for data, split in (("train_data", "train"), ("validation_data", "dev")):
        getattr(params.task, data).override(
            {
                "input_path": os.path.join(root, split),
                "global_batch_size": 2 * _BLOCKS,
            }
        )
    params.task.max_predictions_per_block = _LENGTH
    params.task.model.encoder.preset = "tiny"
    return params


def train_on_two_devices(root, directory):
    """Trains on two logical devices; to be called in a fresh process.

    Args:
        root: directory with the small records.
        directory: where to write checkpoints.
    """
    strategy = two_device_strategy()
    params = small_experiment(root)
    # Half an example for each replica, so that documents are on both.
    params.task.validation_data.global_batch_size = _BLOCKS
    params.task.train_data.global_batch_size = _BLOCKS
    params.trainer.override(
        {
            "train_steps": 20,
            "steps_per_loop": 20,
            "summary_interval": 20,
            "checkpoint_interval": 20,
            "validation_interval": 20,
        }
    )
    with strategy.scope():
        task = experiment.PretrainTask(params.task)
    runner = train_lib.OrbitExperimentRunner(
        strategy, task, "train_and_eval", params, directory
    )
    with strategy.scope():
        runner.controller.train(steps=20)
        logs = runner.controller.evaluate(steps=-1)
    for variable in runner.trainer.model.trainable_variables:
        first, second = (value.numpy() for value in variable.values)
        np.testing.assert_array_equal(first, second)
    # One device reads the same from the same weights.
    model = task.build_model()
    tf.train.Checkpoint(model=model).read(
        runner.checkpoint_manager.latest_checkpoint
    ).expect_partial()
    metrics = task.build_metrics(training=False)
    losses = []
    for batch in task.build_inputs(params.task.validation_data):
        losses.append(task.validation_step(batch, model, metrics)["loss"])
    for metric in metrics:
        np.testing.assert_allclose(
            float(logs[metric.name]), float(metric.result()), rtol=1e-4
        )
    np.testing.assert_allclose(
        float(logs["validation_loss"]), np.mean(losses), rtol=1e-4
    )


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class PretrainTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        vocab_file = cls._path("vocab.txt")
        with open(vocab_file, "w", encoding="utf-8") as file:
            file.write("\n".join(_RESERVED + _ENTITIES + _WORDS) + "\n")
        for split, number, seed in (("train", 800, 0), ("dev", 80, 1)):
            path = cls._path(f"{split}.jsonl")
            with open(path, "w", encoding="utf-8") as file:
                for document in make_documents(number, seed):
                    file.write(json.dumps(document) + "\n")
            code, _, err = run_cli(
                "preprocess",
                "--task=read_twice_pretrain",
                f"--input={path}",
                f"--split={split}",
                f"--vocab_file={vocab_file}",
                f"--output_dir={cls._path(split)}",
                f"--block_length={_LENGTH}",
                f"--num_blocks_per_example={_BLOCKS}",
                "--max_num_annotations=2",
                "--num_shards=2",
            )
            assert not code, err

    @classmethod
    def _path(cls, *names):
        return os.path.join(cls.root, *names)

    def _params(self):
        return small_experiment(self.root)

    def test_two_devices(self):
        call_in_fresh_process(
            train_on_two_devices, self.root, self.get_temp_dir()
        )

    def test_memories_tell_masked_entities(self):
        """As in Table 4: with memories, and in single-segment mode."""
        accuracy = {}
        for name in ("", "_single_segment"):
            directory = self._path(f"run{name}")
            steps = 400
            overrides = {
                "task.train_data.input_path": self._path("train"),
                "task.validation_data.input_path": self._path("dev"),
                "task.train_data.global_batch_size": 2 * _BLOCKS,
                "task.validation_data.global_batch_size": 2 * _BLOCKS,
                "task.model.encoder.preset": "tiny",
                "task.model.encoder.hidden_dropout_prob": 0.0,
                "task.model.encoder.attention_probs_dropout_prob": 0.0,
                "task.max_predictions_per_block": _LENGTH,
                "trainer.train_steps": steps,
                "trainer.steps_per_loop": steps,
                "trainer.summary_interval": steps,
                "trainer.checkpoint_interval": steps,
                "trainer.validation_interval": steps,
                "trainer.optimizer_config.optimizer.type": "adamw",
                "trainer.optimizer_config.warmup.linear.warmup_steps": 40,
                (
                    "trainer.optimizer_config.learning_rate.polynomial."
                    "initial_learning_rate"
                ): 0.003,
            }
            code, _, err = run_cli(
                "train",
                f"--experiment=read_twice/pretrain{name}",
                "--mode=train",
                f"--model_dir={directory}",
                "--params_override="
                + ",".join(f"{k}={v}" for k, v in overrides.items()),
            )
            self.assertEqual(0, code, err)
            output = self._path(f"metrics{name}.json")
            code, _, err = run_cli(
                "evaluate", f"--model_dir={directory}", f"--output={output}"
            )
            self.assertEqual(0, code, err)
            with open(output, encoding="utf-8") as file:
                result = json.load(file)
            accuracy[name] = result["entity_accuracy"]
            # The other words are noise: one of 20.
            self.assertLess(result["other_accuracy"], 0.15)
        # Chance is one in 20, too.
        self.assertLess(accuracy["_single_segment"], 0.2)
        self.assertGreater(accuracy[""], accuracy["_single_segment"] + 0.3)

    def test_batches(self):
        params = self._params()
        task = experiment.PretrainTask(params.task)
        features, labels = next(iter(task.build_inputs(params.task.train_data)))
        self.assertEqual(
            [2 * _BLOCKS, _LENGTH], list(features["token_ids"].shape)
        )
        ids = features["block_ids"].numpy()
        # Whole documents: each of its three segments.
        for number in set(ids.tolist()) - {0}:
            self.assertAllEqual(
                [1, 2, 3], features["block_pos"].numpy()[ids == number]
            )
        masked = features["token_ids"].numpy() == _MASK
        weights = labels["weights"].numpy()
        self.assertEqual(masked.sum(), weights.sum())
        rows = np.arange(2 * _BLOCKS)[:, None]
        positions = features["masked_positions"].numpy()
        self.assertTrue(masked[rows, positions][weights > 0].all())
        # Masked mentions are entities, and other masked words are not.
        names = np.array(_RESERVED + _ENTITIES + _WORDS)[labels["label_ids"]]
        is_entity = labels["is_entity"].numpy()
        for name, weight, entity in zip(
            names.ravel(), weights.ravel(), is_entity.ravel(), strict=True
        ):
            if weight:
                self.assertEqual("e" if entity else "w", name[0])

    def test_the_same_document_twice_is_two_documents(self):
        """Examples are repeated; one copy does not tell what another hides."""
        params = self._params()
        params.task.train_data.global_batch_size = 40 * _BLOCKS
        task = experiment.PretrainTask(params.task)
        features, _ = next(iter(task.build_inputs(params.task.train_data)))
        pairs = np.stack([features["block_ids"], features["block_pos"]], axis=1)
        pairs = pairs[pairs[:, 0] > 0]
        self.assertLen(np.unique(pairs, axis=0), len(pairs))

    def test_evaluation_sees_all_once_and_alike(self):
        params = self._params()
        params.task.validation_data.global_batch_size = 4 * _BLOCKS
        task = experiment.PretrainTask(params.task)

        def read():
            return list(task.build_inputs(params.task.validation_data))

        first, second = read(), read()
        self.assertGreater(len(first), 1)
        ids, masked = [], []
        for batches in (first, second):
            # Documents are numbered in each batch.
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
        self.assertAllEqual(counts, [_SEGMENTS] * 80)

    def test_loss_by_hand(self):
        params = self._params()
        params.task.coreference_weight = 0.5
        task = experiment.PretrainTask(params.task)
        logits = np.array([[[2.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [3.0, 0.0]]])
        labels = {
            "label_ids": tf.constant([[0, 0], [1, 1]]),
            "weights": tf.constant([[1.0, 1.0], [1.0, 0.0]]),
            "is_entity": tf.constant([[1.0, 0.0], [0.0, 0.0]]),
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
                "mlm_accuracy": 1 / 3,
                "entity_accuracy": 1.0,
                "other_accuracy": 0.0,
                "coreference_loss": 0.5,
            },
            results,
        )

    def test_hyperparameters_of_the_paper(self):
        params = exp_factory.get_exp_config("read_twice/pretrain")
        # Sections 2.2 and 4.1.
        self.assertEqual(1_000_000, params.trainer.train_steps)
        self.assertEqual("lamb", params.trainer.optimizer_config.optimizer.type)
        self.assertEqual(512, params.task.train_data.global_batch_size)
        self.assertEqual(0.25, params.task.mlm_entity_fraction_to_mask)
        self.assertEqual(0.15, params.task.mlm_fraction_to_mask)
        config = params.task.model.encoder.to_read_twice_config()
        self.assertEqual("entity", config.summary_mode)

    @parameterized.parameters(
        ("read_twice/pretrain_single_segment", "entity", "block", 1.0),
        ("read_twice/pretrain_no_coreference", "entity", "doc", 0.0),
        ("read_twice/pretrain_cls", "cls", "doc", 0.0),
        ("read_twice/pretrain_sts", "text_block", "doc", 0.0),
    )
    def test_ablations(self, name, summary_mode, mode, coreference_weight):
        params = exp_factory.get_exp_config(name)
        config = params.task.model.encoder.to_read_twice_config(99)
        self.assertEqual(summary_mode, config.summary_mode)
        self.assertEqual(99, config.vocab_size)
        self.assertEqual(mode, params.task.model.cross_block_attention_mode)
        self.assertEqual(coreference_weight, params.task.coreference_weight)

    def test_mistakes(self):
        params = self._params()
        task = experiment.PretrainTask(params.task)
        params.task.train_data.global_batch_size = _BLOCKS + 1
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
        with self.assertRaisesRegex(UserError, "'docs'; expected one of 'doc'"):
            task.build_model()
        for name, value, message in (
            ("mlm_fraction_to_mask", 15.0, "15.0, but must be a fraction"),
            ("mlm_entity_fraction_to_mask", -0.1, "must be a fraction"),
            ("coreference_weight", -1.0, "must be at least 0"),
        ):
            with self.assertRaisesRegex(UserError, f"task.{name}.*{message}"):
                experiment.PretrainTask(params.task.replace(**{name: value}))
        metadata = dict(task.metadata, task="wikihop")
        with self.assertRaisesRegex(UserError, "task 'wikihop', not of"):
            experiment.PretrainTask(params.task, metadata=metadata)
        with self.assertRaisesRegex(UserError, "no features.json"):
            experiment.PretrainTask(experiment.PretrainTaskConfig())


if __name__ == "__main__":
    tf.test.main()
