import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models.read_twice import read_twice_model
from etcmodel.models.read_twice.config import ReadTwiceConfig
from testing import model_references
from testing.layer_checks import check_gradients
from testing.small_read_twice import CROSS
from testing.small_read_twice import LENGTH
from testing.small_read_twice import NO_DROPOUT
from testing.small_read_twice import PAPER
from testing.small_read_twice import SECOND_READS
from testing.small_read_twice import VOCAB
from testing.small_read_twice import make_batch
from testing.small_read_twice import make_config
from testing.small_read_twice import make_model


class ReadTwiceModelTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # The cases cover all pairs of values of the second read, the memories,
        # the postprocessing and the mode.
        ("from_scratch", "cls", False, "none", "doc"),
        ("from_scratch", "entity", True, "linear", "block"),
        ("from_scratch", "text_block", False, "pos", "doc"),
        ("new_layers", "entity", False, "none", "block"),
        ("new_layers", "text_block", True, "transformer", "doc"),
        ("new_layers", "cls", True, "linear", "doc"),
        ("cross_attend_once", "cls", True, "pos", "block"),
        ("cross_attend_once", "entity", False, "transformer", "block"),
        ("cross_attend_once", "text_block", False, "linear", "doc"),
        ("paper", "entity", True, "none", "doc", 1),
        ("paper", "entity", True, "none", "block", 2),
        ("paper", "cls", False, "linear", "block"),
        ("paper", "text_block", True, "none", "doc", 100),
        ("new_layers_cross_attention", "text_block", False, "none", "block"),
        ("new_layers_cross_attention", "cls", True, "transformer", "doc"),
        ("new_layers_cross_attention", "entity", True, "pos", "doc"),
    )
    def test_equals_the_reference(
        self, name, memory, is_sparse, processing, mode, top_k=None
    ):
        self.check(
            **SECOND_READS[name]
            | dict(
                summary_mode=memory,
                use_sparse_memory_attention=is_sparse,
                text_block_extract_every_x=4,
                summary_postprocessing_type=processing,
                summary_postprocessing_num_layers=1,
                cross_attention_top_k=top_k,
            ),
            mode=mode,
        )

    @pytest.mark.both_kerases
    def test_one_corner(self):
        self.check(**PAPER)

    def check(self, mode="doc", **kwargs):
        """Compares outputs and gradients with those of the reference."""
        model = make_model(dtype="float64", **kwargs)
        batch = make_batch()

        def compute():
            output = model(**batch, cross_block_attention_mode=mode)
            return output.final_hidden_states

        def expect():
            return model_references.read_twice(model, batch, mode)

        self.assertAllClose(compute(), expect())
        check_gradients(self, model, [], compute, expect)

    def test_without_a_second_read(self):
        model = make_model(**PAPER)
        output, scores = model(
            **make_batch(),
            enable_side_inputs=False,
            return_attention_scores=True,
        )
        self.assertEqual(["first_read"], list(scores))
        self.assertAllEqual(output.final_hidden_states, output.first_read)
        self.assertEqual([10, 8], output.global_summary.states.shape)

    @parameterized.parameters(*SECOND_READS)
    def test_attention_scores(self, name):
        model = make_model(**SECOND_READS[name])
        batch = make_batch()
        expected = model(batch)
        output, scores = model(batch, return_attention_scores=True)
        self.assertAllClose(
            expected.final_hidden_states, output.final_hidden_states
        )
        memories = output.global_summary.states.shape[0]
        hidden = ~output.block_att_mask.numpy()[:, np.newaxis, np.newaxis]
        sides = [x["side"] for x in scores["second_read"]]
        attends_once = name in ("cross_attend_once", "paper")
        self.assertEqual(attends_once, "cross_attention" in scores)
        if attends_once:
            sides = [scores["cross_attention"]]
        for x in sides:
            self.assertEqual((5, LENGTH, memories), (len(x), *x.shape[2:]))
            self.assertEqual(0, np.max(x * hidden))
            self.assertGreater(np.max(x), 0)
        # A token's probabilities sum to 1 in each softmax.
        has_own_softmax = name == "new_layers_cross_attention"
        for x in scores["first_read"] + scores["second_read"]:
            total = np.sum(x["main"], -1)
            if not has_own_softmax:
                total += np.sum(x["side"], -1)
            self.assertAllClose(total[:4], np.ones([4, 2, LENGTH]))

    def test_options_beside_a_dict_of_inputs(self):
        model = make_model(**PAPER)
        batch = make_batch()
        position_ids = tf.zeros_like(batch["token_ids"])
        output = model(
            batch,
            position_ids=position_ids,
            enable_side_inputs=False,
            cross_block_attention_mode="block",
        )
        self.assertAllEqual(output.final_hidden_states, output.first_read)
        # A segment sees the memories of its own mentions.
        self.assertAllEqual(output.block_att_mask[0], 2 * [True] + 8 * [False])
        self.assertAllClose(
            output.first_read,
            model(**batch, position_ids=position_ids).first_read,
        )
        self.assertNotAllClose(output.first_read, model(batch).first_read)

    def test_defaults(self):
        """By default, each row is a document, and no token sees padding."""
        model = make_model(**CROSS)
        ids = make_batch()["token_ids"][:4]
        output = model(ids)
        self.assertAllEqual(output.block_att_mask, np.eye(4, dtype=bool))
        one = model(ids[2:3, :4])
        self.assertAllClose(
            output.final_hidden_states[2, :4],
            one.final_hidden_states[0],
            1e-4,
            1e-4,
        )
        same = model(
            ids,
            position_ids=tf.tile(tf.range(LENGTH)[tf.newaxis], [4, 1]),
            att_mask=tf.tile((ids != 0)[:, tf.newaxis], [1, LENGTH, 1]),
            block_ids=tf.constant([8, 3, 4, 5]),
            block_pos=tf.ones([4], tf.int32),
        )
        self.assertAllClose(
            output.final_hidden_states, same.final_hidden_states
        )

    def test_number_of_parameters(self):
        """Expects 145 M as in Table 6: RoBERTa plus 15 M (section 4.1).

        RoBERTa's 125 M include its language model head: a dense layer, a
        normalization and a bias for each token.
        """
        # Variables in a graph take no memory.
        with tf.Graph().as_default():
            model = read_twice_model.ReadTwiceModel(
                ReadTwiceConfig.from_preset("base")
            )
            model.build(None)
        head = 768 * 768 + 768 + 2 * 768 + 50265
        total = head + sum(int(np.prod(v.shape)) for v in model.weights)
        self.assertBetween(total, 0.96 * 145e6, 1.04 * 145e6)
        layer = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
        roberta = (50265 + 512) * 768 + 2 * 768 + 12 * layer + head
        self.assertBetween(roberta, 124e6, 126e6)
        self.assertBetween(total - roberta, 14.5e6, 15.6e6)
        # Two layers, the dense layer for mentions, and the attention to
        # memories: its normalization, no-op memory and 21 distance scores.
        self.assertEqual(
            total - roberta,
            2 * layer + (2 * 768 + 1) * 768 + 2 * 768 + 768 + 21,
        )

    @pytest.mark.both_kerases
    def test_checkpointing_does_not_change_gradients(self):
        batch = make_batch()
        options = dict(PAPER, **NO_DROPOUT, num_hidden_layers=2)
        weights = make_model(**options).get_weights()

        def gradients(period):
            model = make_model(**options, grad_checkpointing_period=period)
            model.set_weights(weights)
            with tf.GradientTape() as tape:
                output = model(**batch, training=True)
                loss = tf.reduce_sum(tf.sin(output.final_hidden_states))
            variables = model.trainable_variables
            return [
                tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)
            ]

        self.assertAllClose(gradients(0), gradients(1), 1e-4, 1e-5)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "needs text_block_extract"):
            make_model(summary_mode="text_block")
        model = read_twice_model.ReadTwiceModel(make_config(**PAPER))
        with self.assertRaisesRegex(ValueError, "Call the model"):
            model.get_token_embedding_table()
        model.build(None)
        self.assertEqual(
            [VOCAB, 8], list(model.get_token_embedding_table().shape)
        )
        ids = tf.ones([1, LENGTH + 1], tf.int32)
        with self.assertRaisesRegex(ValueError, "7 tokens has more"):
            model(ids)
        with self.assertRaisesRegex(ValueError, "need annotation_begins"):
            model(ids[:, 1:])
        with self.assertRaisesRegex(ValueError, "mode is 'page'"):
            model(**make_batch(), cross_block_attention_mode="page")


if __name__ == "__main__":
    tf.test.main()
