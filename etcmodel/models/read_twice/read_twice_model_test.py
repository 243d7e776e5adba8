import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import fused_side_attention_test as fused_test
from etcmodel.layers import side_attention_test as side_test
from etcmodel.layers import side_transformer_test as transformer_test
from etcmodel.models.read_twice import read_twice_model
from etcmodel.models.read_twice.config import ReadTwiceConfig

LENGTH, VOCAB = 6, 40
CROSS = dict(
    second_read_type="cross_attend_once",
    second_read_num_new_layers=1,
    second_read_num_cross_attention_heads=2,
)
# A small version of the paper's configuration.
PAPER = CROSS | dict(
    second_read_num_cross_attention_heads=0,
    second_read_enable_default_side_input=True,
    cross_attention_pos_emb_mode="simple_relative",
    cross_attention_pos_emb_size=1,
    use_sparse_memory_attention=True,
    summary_mode="entity",
)
SECOND_READS = {
    "from_scratch": dict(second_read_type="from_scratch"),
    "new_layers": dict(
        second_read_type="new_layers",
        second_read_num_new_layers=1,
        share_kv_projections=True,
    ),
    "cross_attend_once": CROSS,
    "paper": PAPER,
    "new_layers_cross_attention": dict(
        second_read_type="new_layers_cross_attention",
        second_read_num_new_layers=1,
        second_read_num_cross_attention_heads=2,
        second_read_enable_default_side_input=True,
    ),
}
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def make_config(**kwargs):
    arguments = dict(
        vocab_size=VOCAB,
        max_seq_length=LENGTH,
        max_num_blocks_per_document=4,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
    )
    return ReadTwiceConfig(**(arguments | kwargs))


def make_model(seed=0, dtype=None, **kwargs):
    """A built model with weights of all sizes but the norms' at random."""
    model = read_twice_model.ReadTwiceModel(make_config(**kwargs), dtype=dtype)
    model.build(None)
    rng = np.random.default_rng(seed)
    model.set_weights(
        [w + 0.4 * rng.normal(size=w.shape) for w in model.get_weights()]
    )
    return model


def make_batch(seed=1):
    """Three segments of document 1, one of 2, one that is padding."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, VOCAB, size=[5, LENGTH])
    ids[2, 4:] = 0
    ids[4] = 0
    batch = dict(
        token_ids=ids,
        block_ids=[1, 1, 1, 2, 0],
        block_pos=[1, 2, 3, 1, 0],
        annotation_begins=[[1, 4], [0, 0], [2, 3], [3, 0], [0, 0]],
        annotation_ends=[[2, 4], [1, 0], [2, 3], [5, 0], [0, 0]],
        annotation_labels=[[7, 1], [7, 0], [3, 9], [7, 0], [0, 0]],
    )
    return {name: tf.constant(x, tf.int32) for name, x in batch.items()}


def processed_reference(model, memory, labels, document, position, mode):
    """Computes `summary_postprocessing_type` of memories."""
    kind = model.config.summary_postprocessing_type
    extraction = model.summary_extraction
    if kind == "linear":
        return np.tanh(fused_test.dense(extraction.cls_pool, memory))
    if kind == "none":
        return memory
    lookup = extraction.block_position_emb_lookup
    memory = side_test.normalize(
        extraction.summary_emb_layer_norm,
        memory + np.array(lookup.embedding_table)[position],
    )
    if kind == "pos":
        return memory
    sees = (document[:, None] == document) & (document != 0) & (labels != 0)
    if mode == "block":
        sees &= position[:, None] == position
    return transformer_test.reference(
        extraction.transformer_with_side_inputs,
        memory[None],
        [None],
        sees[None],
    )[0]


def reference(model, batch, mode="doc"):
    """The output from the model's weights, in float64."""
    batch = {name: np.array(x) for name, x in batch.items()}
    config, ids = model.config, batch["token_ids"]
    x = np.array(model.token_emb_lookup.embedding_table, np.float64)[ids]
    x = x + np.array(model.position_emb_lookup_long.embedding_table)[:LENGTH]
    embedded = side_test.normalize(model.emb_layer_norm, x)
    mask = np.repeat((ids != 0)[:, None], LENGTH, axis=1)
    first = transformer_test.reference(
        model.transformer_with_side_inputs, embedded, [None], mask
    )
    # The memories, and the tokens that attend to them.
    tokens = np.ones_like(ids, bool)
    if config.summary_mode == "cls":
        memory = first[:, 0]
        labels, per_segment = batch["block_ids"], 1
        owners = np.arange(LENGTH) == 0
        owners = np.repeat(owners[None], len(ids), axis=0)
    else:
        spans = np.stack(
            [batch[f"annotation_{x}"] for x in ("begins", "ends", "labels")],
            axis=-1,
        )
        if config.summary_mode == "text_block":
            every = config.text_block_extract_every_x
            blocks = [
                (begin, min(begin + every, LENGTH) - 1)
                for begin in range(0, LENGTH, every)
            ]
            spans = np.array(
                [[(b, e, row[b] and row[e]) for b, e in blocks] for row in ids]
            )
            spans[..., 2] = spans[..., 2] > 0
        labels, per_segment = spans[..., 2].reshape(-1), spans.shape[1]
        memory, owners = [], np.zeros_like(ids, bool)
        for i, j in np.ndindex(spans.shape[:2]):
            begin, end, label = spans[i, j]
            memory.append(np.concatenate(first[i][[begin, end]]))
            if label:
                owners[i, begin : end + 1] = True
        if config.summary_mode == "text_block":
            owners = np.repeat([np.arange(LENGTH) % every == 0], len(ids), 0)
        memory = fused_test.dense(
            model.summary_extraction.entity_pool_linear, np.stack(memory)
        )
        memory[labels == 0] = 0
    if config.use_sparse_memory_attention:
        tokens = owners
    document = np.repeat(batch["block_ids"], per_segment)
    position = np.repeat(batch["block_pos"], per_segment)
    sees = (batch["block_ids"][:, None] == document) & (labels != 0)
    if mode == "block":
        sees &= batch["block_pos"][:, None] == position
    memory = processed_reference(
        model, memory, labels, document, position, mode
    )
    # [batch, length, memories]
    side_mask = tokens[:, :, None] & sees[:, None]
    if model.cross_attention_layer is None:
        transformer, main = model.second_transformer, first
        if transformer is None:
            transformer, main = model.transformer_with_side_inputs, embedded
        both = np.concatenate([mask, side_mask], axis=2)
        return transformer_test.reference(transformer, main, [memory], both)
    block = model.cross_attention_layer
    attended = side_test.reference(
        block.inner_layer,
        first,
        memory,
        side_mask,
        batch["block_pos"],
        position,
        side_mask.any(-1),
    )
    return transformer_test.reference(
        model.second_transformer,
        transformer_test.apply_block(block, first, attended),
        [None],
        mask,
    )


class ReadTwiceModelTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # All pairs of: second read, memories, postprocessing, and mode.
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
        """Compares outputs and gradients with the reference's."""
        model = make_model(dtype="float64", **kwargs)
        batch = make_batch()

        def compute():
            output = model(**batch, cross_block_attention_mode=mode)
            return output.final_hidden_states

        def expect():
            return reference(model, batch, mode)

        self.assertAllClose(compute(), expect())
        fused_test.check_gradients(self, model, [], compute, expect)

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
        # All keys of a token, in one softmax or in two.
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
        """Each row is a document, and padding is not attended to."""
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

        RoBERTa's 125 M hold the head that predicts tokens: a dense layer, a
        normalization and a bias for each token.
        """
        # A graph's variables take no memory.
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
        # Two layers, the vectors of mentions, and the attention to them: its
        # normalization, no-op memory and 21 scores of distances.
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
        with self.assertRaisesRegex(ValueError, "mode 'page'"):
            model(**make_batch(), cross_block_attention_mode="page")


if __name__ == "__main__":
    tf.test.main()
