"""Tests of WikiHop's `features`."""

import json
import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks import wikihop_python_reference
from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils import sentences
from etcmodel.feature_utils import tokenizers
from etcmodel.feature_utils.texts import ragged_strings
from etcmodel.tasks.wikihop import features
from etcmodel.testing import real_data_path

VOCAB = [
    *tokenizers.WORDPIECE_RESERVED_TOKENS,
    *["new", "york", "rome", "city", "big", "is", "a", "place", "of", "x"],
    *[".", "_", "##s"],
]


def ids(text):
    return [VOCAB.index(token) for token in text.split()]


class FeaturesTest(tf.test.TestCase, parameterized.TestCase):
    def _builder(self, *sizes):
        path = os.path.join(self.get_temp_dir(), "vocab.txt")
        with open(path, "w") as file:
            file.write("\n".join(VOCAB))
        return features.WikiHopFeatureBuilder(
            features.WikiHopFeatureConfig(*sizes),
            tokenizers.WordpieceTokenizer(path),
        )

    def test_paper_sizes(self):
        config = features.WikiHopFeatureConfig()
        self.assertEqual(
            (config.long_length, config.global_length), (4096, 430)
        )
        self.assertEqual(config.max_num_sentences, 200)

    def test_small_example(self):
        """As the worked example of the original code's description."""
        builder = self._builder(20, 14)
        made, stats = builder.build(
            ["place_of x"],
            [[" Rome ", "New York", "", ""]],
            [["Big Rome. City.", "New York's.", ""]],
        )
        got = {name: x[0].numpy().tolist() for name, x in made.features.items()}
        pad = [0] * 3
        text = "rome new york place _ of x big rome . city . new york"
        expected = {
            # "'", "s" and "."; only the last is in the vocabulary.
            "long_token_ids": ids(text + " [UNK] [UNK] .") + pad,
            "long_token_type_ids": [4] * 3 + [3] * 4 + [1] * 10 + pad,
            "long_sentence_ids": (
                [0, 1, 1, 2, 3, 4, 5] + [7] * 3 + [8] * 2 + [10] * 5 + [-1] * 3
            ),
            "long_paragraph_ids": [-1] * 7 + [6] * 5 + [9] * 5 + [-1] * 3,
            "long_paragraph_breakpoints": [
                *[1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1],
                *pad,
            ],
            "l2g_linked_ids": (
                [0, 1, 1, -1, -1, -1, -1, -1, 0, -1, -1, -1, 1, 1] + [-1] * 6
            ),
            "global_token_ids": (
                ids("[unused3] [unused3]")
                + ids("[unused2]") * 4
                + ids("[unused4] [unused0] [unused0] [unused4] [unused0]")
                + pad
            ),
            "global_token_type_ids": [6] * 2 + [5] * 4 + [7, 0, 0, 7, 0] + pad,
            "global_paragraph_breakpoints": [
                *[1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 1],
                *pad,
            ],
        }
        self.assertEqual(got, expected)
        self.assertEqual(
            {name: x.numpy().tolist() for name, x in stats._asdict().items()},
            {
                "tokens": [17],
                "kept_tokens": [17],
                "sentences": [3],
                "kept_sentences": [3],
                "documents": [2],
                "kept_documents": [2],
                "candidates": [2],
                "kept_candidates": [2],
                "links": [3],
            },
        )

    def test_normalize_candidates(self):
        self.assertEqual(
            features.normalize_candidates(
                tf.constant([[" New York ", "ÉCOLE", "", b"\xffX", ""]])
            ).to_list(),
            [[b"new york", "école".encode(), b"", "\ufffdx".encode()]],
        )

    def test_empty_candidates_keep_their_place(self):
        made = self._builder(10, 10)(["x"], [["", " ", "rome"]], [["Rome"]])
        self.assertAllEqual(
            made["global_token_type_ids"][0][:5], [6] * 3 + [5, 7]
        )
        self.assertAllEqual(made["l2g_linked_ids"][0], [2, -1, 2] + [-1] * 7)

    @parameterized.named_parameters(
        ("nothing", [""], [[]], [[]]),
        ("no_documents", ["x"], [["rome"]], [[]]),
        ("empty_documents", ["x"], [["rome"]], [["", " \n", "", "Rome."]]),
        ("no_candidates", ["x"], [[]], [["Rome."]]),
        ("invalid_utf8", [b"x\xff"], [[b"\xc3\x28"]], [[b"\xe4\xb8 rome \0"]]),
        ("many_candidates", ["x"], [["new york"] * 5000], [["Rome. York."]]),
        ("long_query", ["x " * 5000], [["rome"]], [["Rome."]]),
        ("long_candidate", ["x"], [["rome " * 5000, "x"]], [["Rome."]]),
        ("long_sentence", ["x"], [["rome"]], [["rome " * 5000, "x"]]),
        ("long_document", ["x"], [["rome"]], [["Rome is big. " * 3000]]),
        ("many_documents", ["x"], [["rome"]], [["Rome. X."] * 3000]),
    )
    def test_any_size_fits(self, query, candidates, supports):
        made, stats = self._builder(40, 20, 9).build(
            tf.constant(query),
            tf.ragged.constant(candidates, dtype=tf.string, ragged_rank=1),
            tf.ragged.constant(supports, dtype=tf.string, ragged_rank=1),
        )
        got = {name: x.numpy()[0] for name, x in made.features.items()}
        stats = {name: x.numpy()[0] for name, x in stats._asdict().items()}
        self.assertLen(got["long_token_ids"], 40)
        self.assertLen(got["global_token_ids"], 20)
        self.assertEqual(
            stats["kept_tokens"], np.count_nonzero(got["long_token_ids"])
        )
        self.assertLessEqual(stats["kept_sentences"], 9)
        self.assertEqual(
            stats["kept_candidates"],
            np.count_nonzero(got["global_token_type_ids"] == 6),
        )
        self.assertEqual(
            stats["kept_documents"],
            np.count_nonzero(got["global_token_type_ids"] == 7),
        )
        # Every index is that of a used global token.
        used = np.count_nonzero(got["global_token_ids"])
        for name in ("sentence", "paragraph"):
            self.assertAllLess(got[f"long_{name}_ids"], used)
        self.assertAllLess(got["l2g_linked_ids"], stats["kept_candidates"] or 1)

    def test_inputs_of_different_batch_sizes(self):
        builder = self._builder(20, 14)
        strings = tf.TensorSpec([None, None], tf.string)
        call = tf.function(
            builder.__call__,
            input_signature=[
                tf.TensorSpec([None], tf.string),
                strings,
                strings,
            ],
        )
        two, one = [["rome"], ["x"]], [["rome"]]
        for query, candidates, supports, name in (
            (["x", "x"], one, two, "candidates"),
            (["x", "x"], two, one, "supports"),
            (["x"], two, two, "candidates|supports"),
        ):
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, f"Records of ({name})"
            ):
                call(query, candidates, supports)

    def test_what_is_cut_is_counted(self):
        _, stats = self._builder(40, 20, 9).build(
            ["x"], [["new york"] * 5000], [["Rome. York."]]
        )
        self.assertAllEqual(stats.candidates, [5000])
        # The query's token comes first.
        self.assertAllEqual(stats.kept_candidates, [19])
        self.assertAllEqual(stats.tokens, [10_000 + 1 + 4])
        self.assertAllEqual(stats.kept_tokens, [39])
        self.assertAllEqual(stats.kept_documents, [0])
        _, stats = self._builder(40, 20, 9).build(
            ["x"], [["rome"]], [["Rome. X."] * 3000]
        )
        # 18 places: nine documents of one sentence.
        self.assertAllEqual(stats.kept_documents, [9])
        self.assertAllEqual(stats.sentences, [6000])
        self.assertAllEqual(stats.kept_sentences, [9])


class RealRecordsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        with open(real_data_path("wikihop/train_22.json")) as file:
            self.records = json.load(file)

    def _inputs(self, records):
        return (
            tf.constant([r["query"] for r in records]),
            ragged_strings([r["candidates"] for r in records]),
            ragged_strings([r["supports"] for r in records]),
        )

    def _builder(self, vocab="bert_uncased_vocab.txt"):
        return features.WikiHopFeatureBuilder(
            features.WikiHopFeatureConfig(),
            tokenizers.make_tokenizer(real_data_path(f"vocab/{vocab}")),
        )

    def test_same_as_plain_python(self):
        """Given the same sentences and tokens, the same features."""
        builder = self._builder()
        made = builder(*self._inputs(self.records))
        texts = [x for r in self.records for x in r["supports"]]
        split = {
            text: [sentence.decode() for sentence in found]
            for text, found in zip(
                texts, sentences.split_sentences(texts).to_list(), strict=True
            )
        }
        strings = [r["query"] for r in self.records]
        strings += [x for found in split.values() for x in found]
        strings += [
            x.strip().lower() for r in self.records for x in r["candidates"]
        ]
        tokens = dict(
            zip(
                strings,
                builder.tokenizer.tokenize(strings).to_list(),
                strict=True,
            )
        )
        for i, record in enumerate(self.records):
            expected = wikihop_python_reference.convert(
                record["query"],
                record["candidates"],
                record["supports"],
                tokenize=tokens.__getitem__,
                split=split.__getitem__,
            )
            self.assertCountEqual(made, expected)
            for name, values in expected.items():
                self.assertAllEqual(
                    made[name][i], values, f"{record['id']} {name}"
                )

    def test_a_record_does_not_depend_on_its_batch(self):
        """Nor on padding; with WordPiece, `pipeline_test` sees to that."""
        builder = self._builder("gpt2.model")
        together = builder(*self._inputs(self.records))
        self.assertCountEqual(together, etc_features.FEATURES)
        for i in (0, 4, 21):
            query, candidates, supports = self._inputs([self.records[i]])
            padded = builder(
                query,
                tf.pad(candidates.to_tensor(), [[0, 0], [0, 3]]),
                tf.pad(supports.to_tensor(), [[0, 0], [0, 2]]),
            )
            for name, values in together.items():
                self.assertAllEqual(padded[name][0], values[i], name)

    def test_sentencepiece_special_ids_and_links(self):
        builder = self._builder("gpt2.model")
        made, stats = builder.build(*self._inputs(self.records[:3]))
        types = made.features["global_token_type_ids"].numpy()
        tokens = made.features["global_token_ids"].numpy()
        for kind, token in ((6, 42), (5, 41), (7, 43)):
            self.assertAllEqual(np.unique(tokens[types == kind]), [token])
        # Record 0: mentions of candidates in whatever case.
        linked = made.features["l2g_linked_ids"][0].numpy()
        ids_ = made.features["long_token_ids"][0].numpy()[linked == 1]
        pieces = builder.tokenizer.id_to_token(ids_).numpy().tolist()
        self.assertIn("▁Olympic".encode(), pieces)
        self.assertIn("▁ol".encode(), pieces)
        self.assertAllGreater(stats.links, 5)


if __name__ == "__main__":
    tf.test.main()
