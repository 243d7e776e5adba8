import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import summaries
from etcmodel.models.read_twice_config import ReadTwiceConfig

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
    """A built layer with random weights."""
    layer = summaries.SummaryExtraction(make_config(**kwargs))
    layer.build(None)
    rng = np.random.default_rng(seed)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.get_weights()])
    return layer


def make_call(seed=1):
    """Two segments of document 5, one of 2, and one that is padding.

    Their mentions, with labels: [1, 2] 9 and [4, 4] 1; [0, 3] 9; [5, 6] 8.
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
        # The cases of the original's tests.
        ("doc", [1, 3], [4, 1, 3], None, None, [[0, 1, 0], [0, 0, 1]]),
        ("batch", [1, 3], [4, 1, 3], None, None, [[1, 1, 1], [1, 1, 1]]),
        ("block", [1, 3], [4, 1, 3], [1, 1], [1, 1, 2], [[0, 1, 0], [0] * 3]),
        (
            "other_blocks",
            [1, 3],
            [4, 1, 3],
            [1, 1],
            [1, 1, 2],
            [[0, 0, 0], [0, 0, 1]],
        ),
        (
            "batch",
            [1, 3, 0],
            [4, 1, 3, 0],
            None,
            None,
            [[1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]],
        ),
        (
            "block",
            [1, 3, 1],
            [4, 1, 3, 1],
            [1, 1, 2],
            [1, 1, 1, 2],
            [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
        ),
        (
            "other_blocks",
            [1, 3, 1],
            [4, 1, 3, 1],
            [1, 1, 2],
            [1, 1, 1, 2],
            [[0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]],
        ),
    )
    def test_modes(self, mode, ids, all_ids, pos, all_pos, expected):
        mask = summaries.get_cross_block_att(
            tf.constant(ids),
            tf.constant(pos or [1] * len(ids)),
            tf.constant(all_ids),
            tf.constant(all_pos or [1] * len(all_ids)),
            mode,
        )
        self.assertAllEqual(mask, np.array(expected, bool))

    def test_unknown_mode(self):
        one = tf.constant([1])
        with self.assertRaisesRegex(ValueError, "'page'.*'other_blocks'"):
            summaries.get_cross_block_att(one, one, one, one, "page")


class SummaryExtractionTest(tf.test.TestCase, parameterized.TestCase):
    def test_first_tokens(self):
        call = make_call()
        output = make_layer()(**call)
        memory = output.global_summary
        self.assertAllEqual(memory.states, call["hidden_states"][:, 0])
        self.assertAllEqual(memory.processed_states, memory.states)
        self.assertAllEqual(memory.block_ids, [5, 5, 2, 0])
        self.assertAllEqual(memory.block_pos, [1, 2, 1, 0])
        self.assertAllEqual(memory.labels, [5, 5, 2, 0])
        self.assertAllEqual(
            output.block_att_mask,
            np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0] * 4], bool),
        )
        self.assertIsNone(output.token_mask)
        sparse = make_layer(use_sparse_memory_attention=True)(**call)
        self.assertAllEqual(
            sparse.token_mask, [[True] + [False] * (LENGTH - 1)] * 4
        )

    def test_mentions(self):
        layer = make_layer(
            summary_mode="entity", use_sparse_memory_attention=True
        )
        call = make_call()
        output = layer(**call)
        memory = output.local_summary
        states = call["hidden_states"].numpy()
        kernel = np.array(layer.entity_pool_linear.kernel)
        bias = np.array(layer.entity_pool_linear.bias)
        zeros = np.zeros(HIDDEN)

        def pool(segment, begin, end):
            both = [states[segment, begin], states[segment, end]]
            return np.concatenate(both) @ kernel + bias

        expected = [
            pool(0, 1, 2),
            pool(0, 4, 4),
            pool(1, 0, 3),
            zeros,
            pool(2, 5, 6),
            zeros,
            zeros,
            zeros,
        ]
        self.assertAllClose(memory.states, expected)
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
        """Blocks of three tokens in segments of seven: the last has one."""
        layer = make_layer(
            summary_mode="text_block",
            text_block_extract_every_x=3,
            use_sparse_memory_attention=True,
        )
        call = make_call()
        output = layer(**call)
        memory = output.local_summary
        # The second segment has five tokens, the last none.
        self.assertAllEqual(memory.labels, [1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0])
        states = call["hidden_states"].numpy()
        kernel = np.array(layer.entity_pool_linear.kernel)
        bias = np.array(layer.entity_pool_linear.bias)
        expected = np.zeros([12, HIDDEN])
        for row in np.flatnonzero(memory.labels):
            begin = 3 * (row % 3)
            both = states[row // 3, [begin, min(begin + 2, 6)]].reshape(-1)
            expected[row] = both @ kernel + bias
        self.assertAllClose(memory.states, expected)
        self.assertAllEqual(
            output.token_mask, [[x % 3 == 0 for x in range(LENGTH)]] * 4
        )

    def test_postprocessing(self):
        call = make_call()
        states = call["hidden_states"][:, 0].numpy().astype(np.float64)
        layer = make_layer(summary_postprocessing_type="linear")
        memory = layer(**call).global_summary
        self.assertAllEqual(memory.states, call["hidden_states"][:, 0])
        kernel, bias = np.array(layer.cls_pool.kernel), layer.cls_pool.bias
        self.assertAllClose(
            memory.processed_states, np.tanh(states @ kernel + np.array(bias))
        )

        layer = make_layer(summary_postprocessing_type="pos")
        table = np.array(layer.block_position_emb_lookup.embedding_table)
        x = states + table[[1, 2, 1, 0]]
        x -= x.mean(-1, keepdims=True)
        x /= np.sqrt((x * x).mean(-1, keepdims=True))
        norm = layer.summary_emb_layer_norm
        self.assertAllClose(
            layer(**call).global_summary.processed_states,
            x * np.array(norm.gamma) + np.array(norm.beta),
            1e-4,
            1e-4,
        )
        # Positions beyond the table count as its last.
        far = [
            layer(
                **(call | dict(block_pos=tf.constant([1, pos, 1, 0])))
            ).global_summary.processed_states
            for pos in (3, 4, 99)
        ]
        self.assertAllEqual(far[0], far[1])
        self.assertAllEqual(far[0], far[2])

    def test_memories_attend_to_those_of_their_document(self):
        layer = make_layer(
            summary_postprocessing_type="transformer",
            summary_postprocessing_num_layers=1,
        )
        call = make_call()

        def processed(**changes):
            output = layer(**(call | changes))
            return output.global_summary.processed_states.numpy()

        before = processed()
        changed = call["hidden_states"].numpy()
        changed[0] = -changed[0]
        after = processed(hidden_states=tf.constant(changed))
        self.assertNotAllClose(before[0], after[0])
        self.assertNotAllClose(before[1], after[1])
        self.assertAllClose(before[2:], after[2:], 1e-6, 1e-6)
        alone = processed(
            hidden_states=tf.constant(changed),
            cross_block_attention_mode="block",
        )
        self.assertAllClose(
            alone[1:], processed(cross_block_attention_mode="block")[1:]
        )

    def test_config_round_trip(self):
        layer = make_layer(
            summary_mode="text_block", text_block_extract_every_x=3
        )
        copy = summaries.SummaryExtraction.from_config(layer.get_config())
        self.assertEqual(layer.config, copy.config)
        self.assertEqual(layer.get_config(), copy.get_config())


if __name__ == "__main__":
    tf.test.main()
