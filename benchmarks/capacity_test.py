from unittest import mock

import tensorflow as tf

from benchmarks import capacity
from benchmarks import measure
from etcmodel import models


class CapacityTest(tf.test.TestCase):
    def test_the_step_trains(self):
        config = models.EtcConfig.from_preset(
            "tiny",
            vocab_size=30,
            hidden_size=8,
            grad_checkpointing_period=1,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        step = capacity.make_step(config, 40, 3)
        first, second = (float(step()) for _ in range(2))
        # Means of normalized outputs: 1 + 0.5^2 each.
        self.assertAllClose(first, 2.5, rtol=1e-3)
        self.assertLess(second, first)

    def test_features_describe_whole_sentences(self):
        features = capacity.make_features(100, 60, 4)
        self.assertAllEqual(
            features["sentence_ids"], [0] * 27 + [1] * 27 + [2] * 6
        )
        self.assertAllEqual(features["global_token_ids"], [1, 1, 1, 0])
        self.assertAllEqual(features["global_breakpoints"], [0, 0, 1, 0])
        self.assertAllInRange(features["long_token_ids"], 1, 99)
        # Longer ones where there are few global tokens.
        features = capacity.make_features(100, 60, 2)
        self.assertAllEqual(features["sentence_ids"], [0] * 30 + [1] * 30)

    def test_a_line_says_what_was_measured(self):
        sizes = {"VmRSS": 2e9, "VmHWM": 5e9}

        def make_step(config, long_length, global_length):
            self.assertEqual(3, config.num_hidden_layers)
            self.assertEqual((30, 2), (long_length, global_length))
            return lambda: 0.25

        with (
            mock.patch.object(measure, "status_bytes", sizes.get),
            mock.patch.object(capacity, "make_step", make_step),
            mock.patch("time.perf_counter", iter([10.0, 13.5]).__next__),
        ):
            line = capacity.measure_step(
                "tiny", {"num_hidden_layers": 3}, 30, 2
            )
        sizes = dict(length=30, global_length=2, num_hidden_layers=3)
        figures = dict(seconds=3.5, peak_gb=5.0, before_gb=2.0, loss=0.25)
        expected = sizes | figures
        self.assertEqual(expected, {name: line[name] for name in expected})


if __name__ == "__main__":
    tf.test.main()
