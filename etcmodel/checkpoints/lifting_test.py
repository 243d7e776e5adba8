import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import weight_paths
from etcmodel.checkpoints import bert_files
from etcmodel.checkpoints import lifting
from etcmodel.feature_utils.text import tokenizers
from etcmodel.models import EtcConfig
from etcmodel.models import EtcModel
from etcmodel.models import LanguageModelHead
from etcmodel.models import ReadTwiceConfig
from etcmodel.models import ReadTwiceModel
from etcmodel.models.etc import side_inputs
from etcmodel.models.etc.structured_etc_model import StructuredEtcModel
from testing import helpers
from testing.small_berts import SIZES
from testing.small_berts import TOKENS
from testing.small_berts import encode_long
from testing.small_berts import hidden_states
from testing.small_berts import make_bert
from testing.small_berts import write_json
from testing.small_berts import write_vocab

# Ids of words. Global tokens have the ids 1 to 5.
_IDS = [7, 10, 9, 9, 6]


class LiftEtcTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.get_temp_dir()

    @parameterized.product(
        exact=[True, False],
        sharing=[
            {},
            {"share_feed_forward_params": False},
            {"share_kv_projections": True},
            {"share_qkv_projections": True},
            {"share_att_output_projection": True},
        ],
    )
    def test_lifted_encoder_equals_bert(self, exact, sharing):
        bert, weights = make_bert(self.folder, exact)
        config = lifting.lifted_config(
            bert, preset="tiny", absolute_positions="paragraph", **sharing
        )
        self.assertEqual(7, config.max_absolute_position_embeddings)
        model = EtcModel(config)
        report = lifting.lift(model, bert, global_tokens="cls")
        expected = hidden_states(weights, SIZES, _IDS, exact)
        self.assertAllClose(encode_long(model, _IDS), expected, 1e-5, 1e-5)
        # A global token that sees only itself gets the state of a lone [CLS] in
        # BERT.
        _, outputs = model(
            tf.constant([_IDS]),
            tf.constant([[1, 2]]),
            global_position_ids=tf.constant([[0, 0]]),
            g2l_att_mask=tf.zeros([1, 2, 5], tf.int32),
            g2g_att_mask=tf.eye(2, dtype=tf.int32)[tf.newaxis],
        )
        cls = hidden_states(weights, SIZES, [TOKENS.index("[CLS]")], exact)
        for row in outputs[0]:
            self.assertAllClose(cls[0], row, 1e-5, 1e-5)
        self.check_report(report, model, bert)
        self.assertNotIn("initial value", set(report.lifted.values()))
        tables = [
            x
            for name, x in weight_paths.get_weight_paths(model).items()
            if "/relative_" in name
        ]
        self.assertLen(tables, 8)
        for table in tables:
            self.assertAllEqual(tf.zeros_like(table), table)

    def test_reads_a_question_as_bert(self):
        # The input is [CLS], a question of two words, and a sentence of two
        # words. The sentence sees the question only through global tokens.
        bert, weights = make_bert(self.folder)
        config = lifting.lifted_config(
            bert, preset="tiny", absolute_positions="paragraph"
        )
        config.question_words_in_global = True
        model = StructuredEtcModel(config, "paragraphs")
        lifting.lift(model, bert, global_tokens="mean")
        reads = np.array([1, 1, 1, 0, 0], np.int32)
        span = 2 * config.local_radius + 1
        is_text = np.zeros([5, span], np.int32)
        for i in (3, 4):
            is_text[i, [x - i + config.local_radius for x in (3, 4)]] = 1
        masks = {
            "l2l_att_mask": is_text[np.newaxis],
            "g2g_att_mask": np.tile(reads, [1, 5, 1]),
            "l2g_att_mask": np.tile(reads, [1, 5, 1]),
            "g2l_att_mask": np.tile(1 - reads, [1, 5, 1]),
        }
        features = {
            "long_token_ids": _IDS,
            "long_token_type_ids": [1, 3, 3, 1, 1],
            "long_sentence_ids": [-1, 1, 2, 4, 4],
            "long_paragraph_ids": [-1, -1, -1, 3, 3],
            "long_paragraph_breakpoints": [1, 0, 1, 0, 1],
            "global_token_ids": [7, 3, 3, 5, 1],
            "global_token_type_ids": [8, 5, 5, 7, 0],
            "global_paragraph_breakpoints": [1, 0, 1, 0, 1],
        }
        with mock.patch.object(
            side_inputs.SideInputs, "make", return_value=masks
        ):
            text, question = model(
                {name: tf.constant([x]) for name, x in features.items()}
            )
        expected = hidden_states(weights, SIZES, _IDS)
        self.assertAllClose(expected[:3], question[0, :3], 1e-5, 1e-5)
        self.assertAllClose(expected[3:], text[0, 3:], 1e-5, 1e-5)

    def test_global_tokens_are_drawn_to_their_text(self):
        bert, _ = make_bert(os.path.join(self.get_temp_dir(), "drawn"))
        config = lifting.lifted_config(bert, local_radius=2)
        model = StructuredEtcModel(config, "sentences")
        report = lifting.lift(model, bert, own_text_bias=3.0)
        paths = weight_paths.get_weight_paths(model)
        for path, weight in paths.items():
            # With these zeros, all scores without the bias are equal.
            if "global_query_projection" in path:
                weight.assign(tf.zeros_like(weight))
            if "relative_bias" in path:
                self.assertEqual(
                    "global_qkv" in path, "3 for a" in report.lifted[path]
                )
        _, scores = model(
            {
                "long_token_ids": tf.constant([_IDS]),
                "sentence_ids": tf.constant([[0, 0, 1, 1, 1]]),
                "long_breakpoints": tf.constant([[0, 0, 0, 0, 1]]),
                "global_token_ids": tf.constant([[1, 1]]),
                "global_breakpoints": tf.constant([[0, 1]]),
            },
            return_attention_scores=True,
        )
        # [heads, 2, long]
        found = scores[-1]["g2l"][0]
        own, other = np.exp(3.0), 1.0
        for row, number in ((0, 2), (1, 3)):
            total = number * own + (5 - number) * other + 2 * other
            is_own = np.array([0, 0, 1, 1, 1]) == row
            expected = np.where(is_own, own, other) / total
            self.assertAllClose(
                np.tile(expected, [found.shape[0], 1]), found[:, row], 1e-4
            )

    def check_report(self, report, *models):
        """Checks that the report lists every weight of source and models."""
        *models, bert = models
        paths = list(weight_paths.get_weight_paths(models[0]))
        for head in models[1:]:
            paths += [f"head/{x}" for x in weight_paths.get_weight_paths(head)]
        self.assertCountEqual(paths, report.lifted)
        self.assertCountEqual(
            [*bert.names.values(), *bert.left_out],
            [*report.used, *report.left_out],
        )
        text = str(report)
        for name in (*paths, *bert.names.values(), *bert.left_out):
            self.assertIn(f"  {name}: ", text)

    def test_as_in_the_paper(self):
        # A lifted model without absolute positions ignores the order of words.
        bert, weights = make_bert(self.folder)
        model = EtcModel(lifting.lifted_config(bert, preset="tiny"))
        report = lifting.lift(model, bert)
        weights["embeddings.position_embeddings"][:] = 0
        self.assertAllClose(
            encode_long(model, _IDS),
            hidden_states(weights, SIZES, _IDS),
            1e-5,
            1e-5,
        )
        self.assertEqual(
            "the model has no absolute positions",
            report.left_out["bert.embeddings.position_embeddings.weight"],
        )

    @parameterized.parameters("cls", "mean", "keep")
    def test_global_tokens(self, kind):
        bert, weights = make_bert(self.folder)
        model = EtcModel(lifting.lifted_config(bert, preset="tiny"))
        lifting.lift(model, bert, global_tokens=kind)
        expected = weights["embeddings.word_embeddings"].copy()
        # [unused0] to [unused4] have the ids 1 to 5, and [CLS] has the id 7.
        if kind == "cls":
            expected[1:6] = expected[7]
        elif kind == "mean":
            expected[1:6] = expected.mean(0)
        self.assertAllClose(expected, model.get_token_embedding_table())
        config = lifting.lifted_config(
            bert, preset="tiny", absolute_positions="paragraph"
        )
        model = EtcModel(config)
        lifting.lift(model, bert, global_tokens=kind)
        # The model adds the position of [CLS] to these embeddings.
        positions = weights["embeddings.position_embeddings"]
        begin = model.get_token_embedding_table()[1:6] + positions[0]
        if kind == "mean":
            expected[1:6] += positions[1:].mean(0)
        else:
            expected[1:6] += positions[0]
        self.assertAllClose(expected[1:6], begin)

    def test_another_vocabulary(self):
        bert, weights = make_bert(self.folder, head=True, layer_norm_eps=1e-5)
        path = write_vocab(
            os.path.join(self.folder, "new.txt"),
            [*TOKENS[:6], "new", *TOKENS[:5:-1]],
        )
        model = EtcModel(
            lifting.lifted_config(bert, preset="tiny", vocab_size=12)
        )
        model.build(None)
        before = np.array(model.get_token_embedding_table())
        head = LanguageModelHead(12, 8)
        report = lifting.lift(model, bert, path, "keep", head)
        table = np.array(model.get_token_embedding_table())
        rows = weights["embeddings.word_embeddings"]
        self.assertAllEqual(rows[:6], table[:6])
        self.assertAllEqual(rows[:5:-1], table[7:])
        self.assertAllEqual(before[6], table[6])
        self.assertEqual(["new"], report.unmatched)
        bias = weights["mlm.bias"]
        self.assertAllEqual([*bias[:6], 0, *bias[:5:-1]], head.output_bias)
        self.assertEqual(
            [
                "The epsilon of normalizations is 1e-05 in the source, and "
                "1e-12 here.",
                "The head's hidden_act is 'gelu', in the source 'exact_gelu'.",
                "The head's layer_norm_epsilon is 0.001, in the source 1e-05.",
            ],
            report.notes,
        )
        self.assertAllEqual(weights["mlm.dense.kernel"], head.dense.kernel)
        self.check_report(report, model, head, bert)

    @parameterized.parameters(
        ({"num_attention_heads": 4}, "num_attention_heads 4.*source 2"),
        ({"num_hidden_layers": 1}, "num_hidden_layers 1.*source 2"),
        ({"hidden_size": 16}, "hidden_size 16.*source 8"),
        ({"intermediate_size": 9}, "intermediate_size 9.*source 12"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'.*source 'exact_gelu'"),
        ({"vocab_size": 13}, "vocab_size of .* is 13, expected 11"),
        ({"embedding_size": 4}, "embedding_size 4.*source 8"),
        ({"use_pre_activation_order": True}, "use_pre_activation_order"),
        (
            {"max_absolute_position_embeddings": 9},
            "9 absolute positions.* has 7",
        ),
    )
    def test_other_sizes(self, sizes, message):
        bert, _ = make_bert(self.folder)
        model = EtcModel(lifting.lifted_config(bert, preset="tiny", **sizes))
        model.build(None)
        before = model.get_weights()
        with self.assertRaisesRegex(ValueError, message):
            lifting.lift(model, bert)
        for x, y in zip(before, model.get_weights(), strict=True):
            self.assertAllEqual(x, y)

    def test_errors(self):
        bert, _ = make_bert(self.folder, vocab=False)
        config = lifting.lifted_config(bert, preset="tiny")
        with self.assertRaisesRegex(ValueError, "no vocabulary"):
            lifting.lift(EtcModel(config), bert)
        lifting.lift(EtcModel(config), bert, global_tokens="keep")
        with self.assertRaisesRegex(ValueError, "'none, keep'"):
            lifting.lift(EtcModel(config), bert, global_tokens="none, keep")
        with self.assertRaisesRegex(ValueError, "'all'"):
            lifting.lifted_config(bert, absolute_positions="all")
        path = write_vocab(
            os.path.join(self.folder, "other.txt"), [*TOKENS, "more"]
        )
        with self.assertRaisesRegex(ValueError, "12 tokens, but .* 11 rows"):
            lifting.lift(EtcModel(config), bert, path)
        write_json(self.folder, "vocab.json", {"<s>": 0})
        path = os.path.join(self.folder, "vocab.json")
        with self.assertRaisesRegex(ValueError, "package has no tokenizer"):
            lifting.lift(EtcModel(config), bert, path)

    def test_more_tokens_than_rows(self):
        bert, _ = make_bert(self.folder)
        config = lifting.lifted_config(bert, preset="tiny")
        own = write_vocab(bert.vocab_file, [*TOKENS, "more"])
        other = write_vocab(os.path.join(self.folder, "b.txt"), TOKENS)
        with self.assertRaisesRegex(
            ValueError, f"{own} has 12 tokens, but {bert.path} has 11 rows"
        ):
            lifting.lift(EtcModel(config), bert, other)

    def test_vocabulary_of_another_model(self):
        words = [f"word{i}" for i in range(20)]
        bert, _ = make_bert(self.folder)
        path = write_vocab(
            os.path.join(self.folder, "other.txt"), [*TOKENS, *words]
        )
        config = lifting.lifted_config(bert, preset="tiny", vocab_size=31)
        with self.assertRaisesRegex(ValueError, "20 of 31 tokens.*word0"):
            lifting.lift(EtcModel(config), bert, path)


class LiftReadTwiceTest(tf.test.TestCase, parameterized.TestCase):
    def make(self, bert, **options):
        config = lifting.lifted_config(
            bert, ReadTwiceConfig, "tiny", summary_mode="cls", **options
        )
        return ReadTwiceModel(config)

    @parameterized.parameters(True, False)
    def test_first_read_is_bert(self, exact):
        bert, weights = make_bert(self.get_temp_dir(), exact)
        model = self.make(bert)
        self.assertEqual(7, model.config.max_seq_length)
        report = lifting.lift(model, bert)
        expected = hidden_states(weights, SIZES, _IDS, exact)
        output = model(tf.constant([_IDS]))
        self.assertAllClose(output.first_read[0], expected, 1e-5, 1e-5)
        self.assertEqual(
            "encoder.layer.1.attention.self.query.kernel",
            report.lifted[
                "second_transformer/attention_layers_0/inner_layer/"
                "main_query_projection/linear/kernel"
            ],
        )
        own = {
            x.split("/")[0]
            for x, text in report.lifted.items()
            if text == "initial value"
        }
        self.assertEqual({"cross_attention_layer"}, own)

    def test_second_read_gets_the_remaining_layers(self):
        # Each read has one layer. Without memories, both reads together compute
        # what BERT's two layers compute.
        bert, weights = make_bert(self.get_temp_dir())
        model = self.make(bert, num_hidden_layers=1)
        lifting.lift(model, bert)
        layer = model.second_transformer.attention_layers[0]
        self.assertAllEqual(
            weights["encoder.layer.1.attention.self.key.kernel"],
            layer.inner_layer.main_key_projection.linear.kernel,
        )
        second = model.second_transformer(model(tf.constant([_IDS])).first_read)
        self.assertAllClose(
            hidden_states(weights, SIZES, _IDS),
            second[0],
            1e-5,
            1e-5,
        )

    def test_other_numbers_of_layers(self):
        bert, _ = make_bert(self.get_temp_dir())
        with self.assertRaisesRegex(ValueError, "positions applies to ETC"):
            lifting.lifted_config(
                bert, ReadTwiceConfig, "tiny", absolute_positions="paragraph"
            )
        model = self.make(bert, second_read_num_new_layers=4)
        with self.assertRaisesRegex(ValueError, "new_layers 4, in the source"):
            lifting.lift(model, bert)
        model = self.make(bert, num_hidden_layers=3)
        with self.assertRaisesRegex(
            ValueError, "num_hidden_layers 3 and.* 1, in the source 2"
        ):
            lifting.lift(model, bert)


class RealBertTest(tf.test.TestCase):
    """Lifts a BERT of six layers that was trained on a billion sentences."""

    def test_another_vocabulary_of_the_same_size(self):
        bert = bert_files.read_bert(helpers.real_bert())
        config = lifting.lifted_config(bert, num_hidden_layers=1)
        bert = bert._replace(sizes={**bert.sizes, "num_hidden_layers": 1})
        self.assertEqual([], lifting.lift(EtcModel(config), bert).notes)
        with open(bert.vocab_file, encoding="utf-8") as stream:
            tokens = stream.read().splitlines()
        # From token 1000 on, tokens are shifted by one row; the number of
        # tokens stays the same.
        path = write_vocab(
            os.path.join(self.get_temp_dir(), "vocab.txt"),
            [*tokens[:1000], "hello-there", *tokens[1000:-1]],
        )
        bert = bert._replace(vocab_file=None)
        with self.assertLogs("absl", "WARNING") as logs:
            report = lifting.lift(EtcModel(config), bert, path)
        self.assertIn("does not seem to be the vocabulary", logs.output[0])
        self.assertLen(report.notes, 1)

    def test_real_sentences(self):
        bert = bert_files.read_bert(helpers.real_bert())
        config = lifting.lifted_config(
            bert, absolute_positions="paragraph", local_radius=63
        )
        self.assertIsInstance(config, EtcConfig)
        model = EtcModel(config)
        lifting.lift(model, bert)
        tokenizer = tokenizers.make_tokenizer(bert.vocab_file)
        cls, sep = (tokenizer.special_ids[x] for x in ("cls", "separator"))
        for text in (
            "Where was the author of the novel born?",
            "Krakow, on the Vistula, was the capital of Poland until 1596; "
            "its university, founded in 1364, is one of the oldest in Europe.",
        ):
            ids = [cls, *tokenizer.tokenize(text).numpy(), sep]
            self.assertAllClose(
                encode_long(model, ids),
                hidden_states(bert.weights, bert.sizes, ids),
                1e-4,
                1e-4,
            )


if __name__ == "__main__":
    tf.test.main()
