import tensorflow as tf
from absl.testing import parameterized
from official.core import exp_factory

from etcmodel.errors import UserError
from etcmodel.tasks import registry
from etcmodel.tasks.nq.task import TASK
from etcmodel.tasks.nq.task import NQPreprocessingConfig
from testing.nq_pages import make_config


class SizesTest(tf.test.TestCase, parameterized.TestCase):
    def test_paper_sizes(self):
        config = NQPreprocessingConfig()
        self.assertEqual(
            (config.long_length, config.global_length, config.stride),
            (4096, 230, 2048),
        )
        self.assertEqual(config.question_length, 32)
        self.assertEqual(config.unanswerable_rate, 4.0)

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
    def test_sizes_that_do_not_fit(self, sizes, more, message):
        with self.assertRaisesRegex(ValueError, message):
            make_config(*sizes, **more)

    def test_default_stride_does_not_fit_short_inputs(self):
        """As the commands tell it."""
        with self.assertRaisesRegex(UserError, "not fit: stride is 2048"):
            TASK.make_preprocessing_config({"long_length": 512, "stride": None})

    def test_sizes_that_just_fit(self):
        make_config(36, 1, 32, global_length=34)
        make_config(64, 53, 8, global_length=10)
        make_config(64, 8, 8, global_length=4, fixed_block_size=16)
        make_config(4, 1, 0)


class ExperimentsTest(tf.test.TestCase):
    def test_ablations(self):
        """Each differs from the base model in what its name says."""
        expected = {
            "etc/nq": {},
            "etc/nq_no_hard_g2l": {"use_hard_g2l_mask": False},
            "etc/nq_shared": {
                "share_qkv_projections": True,
                "share_att_output_projection": True,
            },
            "etc/nq_2x_radius": {"local_radius": 169},
            "etc/nq_2x_vocabulary": {
                "relative_pos_max_distance": 24,
                "relative_vocab_size": 64,
            },
            "etc/nq_large": {
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "local_radius": 169,
                "relative_pos_max_distance": 24,
            },
        }
        self.assertEqual(set(expected), set(TASK.experiments))
        registry.register_experiments("nq")
        base = None
        for name, changes in expected.items():
            params = exp_factory.get_exp_config(name)
            values = params.task.model.encoder.to_config(99).to_dict()
            base = base or values
            self.assertEqual(4802, params.trainer.validation_interval)
            for key, value in changes.items():
                self.assertEqual(value, values[key], msg=f"{name} {key}")
            if name != "etc/nq_large":
                self.assertEqual({**base, **changes}, values, msg=name)
                decay = params.trainer.optimizer_config.learning_rate.polynomial
                self.assertEqual(5e-5, decay.initial_learning_rate)


if __name__ == "__main__":
    tf.test.main()
