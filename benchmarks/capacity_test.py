import tensorflow as tf

from benchmarks import capacity
from etcmodel import models


class CapacityTest(tf.test.TestCase):
    def test_the_step_trains(self):
        config = models.EtcConfig.from_preset(
            "tiny", grad_checkpointing_period=1
        )
        step = capacity.make_step(config, 40, 3)
        losses = [float(step()) for _ in range(2)]
        self.assertAllInRange(losses, 0.1, 10.0)
        self.assertNotEqual(*losses)

    def test_features_describe_whole_sentences(self):
        features = capacity.make_features(100, 60, 4)
        self.assertAllEqual(
            features["sentence_ids"], [0] * 27 + [1] * 27 + [2] * 6
        )
        self.assertAllEqual(features["global_token_ids"], [1, 1, 1, 0])
        self.assertAllEqual(features["global_breakpoints"], [0, 0, 1, 0])
        self.assertAllInRange(features["long_token_ids"], 1, 99)

    def test_sentences_are_longer_where_global_tokens_are_few(self):
        features = capacity.make_features(100, 60, 2)
        self.assertAllEqual(features["sentence_ids"], [0] * 30 + [1] * 30)

    def test_a_line_says_what_was_measured(self):
        line = capacity.run("tiny", {}, 30, 2)
        self.assertGreater(line["seconds"], 0)
        self.assertGreaterEqual(line["peak_gb"], line["before_gb"])
        self.assertEqual(line["length"], 30)


if __name__ == "__main__":
    tf.test.main()
