from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.hotpotqa import experiment
from etcmodel.tasks.model_testing import shrink_experiment
from etcmodel.tasks.model_testing import small_records


def small_experiment(**options):
    """A tiny model on nine tiny records."""
    params = experiment.hotpotqa_experiment(**options)
    return shrink_experiment(params, small_records("hotpotqa"))


class HotpotQATaskTest(tf.test.TestCase, parameterized.TestCase):
    def _task(self, **options):
        return experiment.HotpotQATask(small_experiment(**options).task)

    @parameterized.parameters("span", "bio")
    def test_labels(self, encoding):
        # Of "[CLS] where is jan ? | jan | jan is here . | he is in paris .".
        task = self._task(answer_encoding=encoding)
        data = task.task_config.validation_data
        self.assertEqual((32, 16), (task.long_length, task.global_length))
        batches = list(task.build_inputs(data))
        self.assertLen(batches, 3)
        weights = tf.concat([labels["weight"] for _, labels in batches], 0)
        self.assertAllEqual([1.0] * 9 + [0.0] * 3, weights)
        _, labels = batches[0]
        self.assertEqual([4, 16], labels["supporting_facts"].shape)
        # CLS, four of the question, a paragraph, a title, two sentences.
        self.assertAllEqual(
            [-1] * 5 + [1, 1, 0, 1] + [-1] * 7, labels["supporting_facts"][0]
        )
        self.assertAllEqual(
            [-1] * 6 + [0, 1, 2] + [-1] * 7, labels["global_segments"][0]
        )
        self.assertEqual(0, labels["answer_type"][0])
        # The fourth token of the last sentence.
        position = 1 + 4 + 1 + 4 + 3
        self.assertEqual(10, labels["long_starts"][0, position])
        self.assertEqual(15, labels["long_ends"][0, position])
        if encoding == "bio":
            expected = np.full([32], 2)
            expected[position] = 0
            self.assertAllEqual(expected, labels["answer_bio"][0])
            is_text = np.zeros([32], bool)
            is_text[5:15] = True
            self.assertAllEqual(is_text, labels["is_answer_token"][0])
        else:
            self.assertEqual(position, labels["answer_begin"][0])
            self.assertEqual(position, labels["answer_end"][0])

    def test_losses_and_padding(self):
        task = self._task()
        data = task.task_config.validation_data
        *_, (_, labels) = task.build_inputs(data)
        # One record and three of padding; logits of 0 all over.
        self.assertAllEqual([1.0, 0.0, 0.0, 0.0], labels["weight"])
        outputs = {
            "supporting_fact_logits": tf.zeros([4, 16]),
            "answer_type_logits": tf.zeros([4, 3]),
            "answer_begin_logits": tf.zeros([4, 32]),
            "answer_end_logits": tf.zeros([4, 32]),
        }
        facts = (labels["supporting_facts"][0].numpy() >= 0).sum()
        is_span = int(labels["answer_type"][0]) == 0
        expected = {
            "supporting_facts_loss": facts * np.log(2),
            "answer_type_loss": np.log(3),
            "answer_begin_loss": is_span * np.log(32),
            "answer_end_loss": is_span * np.log(32),
        }
        loss = np.mean(list(expected.values()))
        self.assertAllClose(loss, task.build_losses(labels, outputs), rtol=1e-4)
        metrics = task.build_metrics()
        task.process_metrics(metrics, labels, outputs)
        self.assertAllClose(
            {**expected, "answer_type_accuracy": float(is_span)},
            {metric.name: metric.result() for metric in metrics},
        )

    def test_options_reach_the_model(self):
        params = small_experiment(
            use_hard_g2l_mask=False, flat_sequence=True, answer_encoding="bio"
        )
        params.task.model.cls_ignores_hard_g2l = False
        task = experiment.HotpotQATask(params.task)
        with mock.patch.object(
            experiment.model_lib, "build_hotpotqa_model"
        ) as build:
            task.build_model()
        (config,), options = build.call_args
        self.assertFalse(config.use_hard_g2l_mask)
        for name, expected in {
            "answer_encoding": "bio",
            "cls_ignores_hard_g2l": False,
            "flat_sequence": True,
            "long_length": 32,
            "global_length": 16,
        }.items():
            self.assertEqual(expected, options[name])


if __name__ == "__main__":
    tf.test.main()
