import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.tasks.nq.task import TASK
from etcmodel.tasks.nq.task import NQPreprocessingConfig
from testing.nq_pages import make_config


class SizesTest(tf.test.TestCase, parameterized.TestCase):
    def test_unanswerable_rate(self):
        config = NQPreprocessingConfig(include_unknown_rate=0.02)
        self.assertAlmostEqual(config.unanswerable_rate, 0.08)
        config = NQPreprocessingConfig(
            include_unknown_rate=0.02, include_unknown_rate_for_unanswerable=0.0
        )
        self.assertEqual(config.unanswerable_rate, 0.0)

    @parameterized.named_parameters(
        ("no_room", (35, 1, 32), {}, "leaves no room"),
        ("no_stride", (64, 0, 8), {}, "it can be 1 to 53"),
        ("negative_stride", (64, -3, 8), {}, "stride is -3"),
        ("long_stride", (64, 54, 8), {}, "it can be 1 to 53"),
        ("no_global", (64, 8, 8), {"global_length": 9}, "at least 10"),
        (
            "few_blocks",
            (65, 8, 8),
            {"global_length": 4, "fixed_block_size": 16},
            "at least 5",
        ),
        ("blocks", (64, 8, 8), {"fixed_block_size": -1}, "fixed_block_size"),
        ("question", (64, 8, -1), {}, "question_length is -1"),
        ("rate", (64, 8, 6), {"include_unknown_rate": -0.1}, "-0.1"),
        (
            "other_rate",
            (64, 8, 6),
            {"include_unknown_rate_for_unanswerable": -1.0},
            "-1.0",
        ),
    )
    def test_impossible_sizes(self, sizes, more, message):
        with self.assertRaisesRegex(ValueError, message):
            make_config(*sizes, **more)

    def test_default_stride_is_too_long_for_short_inputs(self):
        with self.assertRaisesRegex(UserError, "inconsistent: stride is 2048"):
            TASK.make_preprocessing_config({"long_length": 512, "stride": None})

    def test_minimal_sizes(self):
        make_config(36, 1, 32, global_length=34)
        make_config(64, 53, 8, global_length=10)
        make_config(64, 8, 8, global_length=4, fixed_block_size=16)
        make_config(4, 1, 0)


if __name__ == "__main__":
    tf.test.main()
