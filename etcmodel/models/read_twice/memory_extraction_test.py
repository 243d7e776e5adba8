import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models.read_twice import memory_extraction
from etcmodel.models.read_twice.config import ReadTwiceConfig

HIDDEN, LENGTH = 4, 7


def make_config(**kwargs):
    arguments = dict(
        vocab_size=50,
        hidden_size=HIDDEN,
        num_attention_heads=2,
        intermediate_size=8,
        num_hidden_layers=1,
        max_num_blocks_per_document=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return ReadTwiceConfig(**(arguments | kwargs))


def make_layer(seed=0, **kwargs):
    """Returns a built layer with random weights."""
    layer = memory_extraction.SummaryExtraction(make_config(**kwargs))
    layer.build(None)
    rng = np.random.default_rng(seed)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.get_weights()])
    return layer


def make_call(seed=1):
    """Returns two segments of document 5, one of document 2, and padding.

    The segments' mentions are entity 9 at [1, 2] and 1 at [4, 4]; entity 9
    at [0, 3]; entity 8 at [5, 6].
    """
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, 50, size=[4, LENGTH])
    ids[1, 5:] = 0
    ids[3] = 0
    return dict(
        hidden_states=tf.constant(
            rng.normal(size=[4, LENGTH, HIDDEN]), tf.float32
        ),
        token_ids=tf.constant(ids, tf.int32),
        block_ids=tf.constant([5, 5, 2, 0]),
        block_pos=tf.constant([1, 2, 1, 0]),
        annotation_begins=tf.constant([[1, 4], [0, 0], [5, 0], [0, 0]]),
        annotation_ends=tf.constant([[2, 4], [3, 0], [6, 0], [0, 0]]),
        annotation_labels=tf.constant([[9, 1], [9, 0], [8, 0], [0, 0]]),
    )


class GetCrossBlockAttTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # The cases of the original code's tests, and a row of padding.
        ("doc", [[0, 1, 0, 1], [0, 0, 1, 0], [0, 1, 0, 1], [0] * 4]),
        ("batch", [[1] * 4, [1] * 4, [1] * 4, [0] * 4]),
        ("block", [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0] * 4]),
        ("other_blocks", [[0, 0, 0, 1], [0] * 4, [0, 1, 0, 0], [0] * 4]),
    )
    def test_modes(self, mode, expected):
        mask = memory_extraction.get_cross_block_att(
            tf.constant([1, 3, 1, 0]),
            tf.constant([1, 1, 2, 1]),
            tf.constant([4, 1, 3, 1, 0]),
            tf.constant([1, 1, 1, 2, 1]),
            mode,
        )
        # The last memory is padding.
        self.assertAllEqual(mask, np.pad(expected, [[0, 0], [0, 1]]) != 0)

    def test_unknown_mode(self):
        one = tf.constant([1])
        with self.assertRaisesRegex(ValueError, "'page'.*'other_blocks'"):
            memory_extraction.get_cross_block_att(one, one, one, one, "page")


class SummaryExtractionTest(tf.test.TestCase, parameterized.TestCase):
    def test_first_tokens(self):
        memory = make_layer()(**make_call()).local_summary
        self.assertAllEqual(memory.labels, [5, 5, 2, 0])

    def test_mentions(self):
        layer = make_layer(
            summary_mode="entity", use_sparse_memory_attention=True
        )
        call = make_call()
        output = layer(**call)
        memory = output.local_summary
        # The vectors of padding are zeros.
        self.assertAllEqual(
            np.any(memory.states != 0, axis=1), memory.labels != 0
        )
        self.assertAllEqual(memory.labels, [9, 1, 9, 0, 8, 0, 0, 0])
        self.assertAllEqual(memory.block_ids, [5, 5, 5, 5, 2, 2, 0, 0])
        self.assertAllEqual(memory.block_pos, [1, 1, 2, 2, 1, 1, 0, 0])
        document = [1, 1, 1, 0, 0, 0, 0, 0]
        self.assertAllEqual(
            output.block_att_mask,
            np.array([document, document, [0] * 4 + [1, 0, 0, 0], [0] * 8]),
        )
        self.assertAllEqual(
            output.token_mask,
            np.array(
                [
                    [0, 1, 1, 0, 1, 0, 0],
                    [1, 1, 1, 1, 0, 0, 0],
                    [0, 0, 0, 0, 0, 1, 1],
                    [0] * 7,
                ],
                bool,
            ),
        )
        with self.assertRaisesRegex(ValueError, "need annotation_begins"):
            layer(**(call | dict(annotation_labels=None)))

    def test_text_blocks(self):
        """Uses blocks of 3 tokens in segments of 7 tokens."""
        layer = make_layer(
            summary_mode="text_block", text_block_extract_every_x=3
        )
        labels = layer(**make_call()).local_summary.labels
        # Segment 1 has five tokens; the last segment is padding.
        self.assertAllEqual(labels, [1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0])

    def test_positions_beyond_the_table_count_as_its_last(self):
        layer = make_layer(summary_postprocessing_type="pos")
        call = make_call()
        far = [
            layer(
                **(call | dict(block_pos=tf.constant([1, pos, 1, 0])))
            ).global_summary.processed_states
            for pos in (3, 4, 99, 2)
        ]
        self.assertAllEqual(far[0], far[1])
        self.assertAllEqual(far[0], far[2])
        self.assertNotAllClose(far[0], far[3])


if __name__ == "__main__":
    tf.test.main()
