import numpy as np
import tensorflow as tf

from benchmarks import openkp_head


class OpenKPHeadTest(tf.test.TestCase):
    def test_features(self):
        features = openkp_head.make_features(12, 4, 6)
        self.assertAllEqual(
            np.repeat([1, 2, 3, 4, 5, 6], 2), features["words"][0]
        )
        self.assertAllEqual(
            np.repeat([0, 1, 2, 3], 3), features["long_sentence_ids"][0]
        )

    def test_steps(self):
        """Both parts have gradients."""
        for part in ("encoder", "head"):
            step = openkp_head.make_step(part, "tiny", 12, 4, 6)
            self.assertNotEqual(0.0, float(step()))


if __name__ == "__main__":
    tf.test.main()
