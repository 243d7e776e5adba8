import tensorflow as tf
from absl.testing import parameterized
from official.core import exp_factory

from etcmodel.tasks import registry


class TaskTest(tf.test.TestCase, parameterized.TestCase):
    def _experiment(self, name):
        registry.register_experiments("read_twice_" + name.split("_")[0])
        return exp_factory.get_exp_config(f"read_twice/{name}").task

    @parameterized.parameters(
        ("hotpotqa", 40, 10), ("triviaqa", 8, 20), ("narrativeqa", 40, 10)
    )
    def test_decoding_of_the_paper(self, name, top, size):
        task = self._experiment(name)
        self.assertEqual((top, size), (task.decode_top_k, task.decode_max_size))
        config = task.model.encoder.to_config(99)
        # ReadTwice paper, Appendix C.4.
        self.assertEqual(100, config.cross_attention_top_k)

    @parameterized.parameters(
        # Sparse cross attention: with memories of mentions, only mentions read
        # them; with memories of segments, all tokens do.
        ("", "entity", "doc", True),
        ("_single_segment", "entity", "block", True),
        ("_cls", "cls", "doc", False),
        ("_sts", "text_block", "doc", False),
    )
    def test_ablations(self, suffix, summary_mode, mode, is_sparse):
        model = self._experiment(f"narrativeqa{suffix}").model
        config = model.encoder.to_config(99)
        self.assertEqual(summary_mode, config.summary_mode)
        self.assertEqual(is_sparse, config.use_sparse_memory_attention)
        self.assertEqual(mode, model.cross_block_attention_mode)


if __name__ == "__main__":
    tf.test.main()
