"""Tests of `layout`: worked examples, and bookkeeping on random content."""

import random

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import layout
from etcmodel.feature_utils.layout import GlobalToken
from etcmodel.feature_utils.layout import LayoutEngine
from etcmodel.feature_utils.layout import Link
from etcmodel.feature_utils.layout import Section

# How WikiHop is laid out (paper, Appendix C).
WIKIHOP = (
    Section("candidates", 4, segment_global=GlobalToken(4, 6), cut="keep"),
    Section("query", 3, token_global=GlobalToken(3, 5), cut="keep"),
    Section(
        "documents",
        1,
        group_global=GlobalToken(5, 7),
        segment_global=GlobalToken(1, 0),
        cut="balanced",
    ),
)

# How HotpotQA is laid out: the [CLS] has a global token but is not linked to
# it, and titles are of a token type of their own.
HOTPOTQA = (
    Section(
        "cls",
        1,
        token_global=GlobalToken(101),
        link_sentences=False,
        cut="keep",
    ),
    Section("question", 3, token_global=GlobalToken(3), cut="keep"),
    Section(
        "paragraphs",
        1,
        first_segment_token_type_id=2,
        group_global=GlobalToken(5),
        segment_global=GlobalToken(1),
        cut="fit",
    ),
)


def ragged(values, rank):
    return tf.ragged.constant(values, ragged_rank=rank, dtype=tf.int32)


def hotpotqa_contents():
    return {
        "cls": layout.one_segment(layout.constant_tokens([101], 1)),
        "question": layout.one_segment(ragged([[51, 52]], 1)),
        "paragraphs": ragged([[[[61], [71, 72], [73]], [[81, 82], [91]]]], 3),
    }


class LayoutTest(tf.test.TestCase, parameterized.TestCase):
    def assertFeatures(self, features, **expected):
        for name, values in expected.items():
            values = [
                int(x) if x.lstrip("-").isdigit() else x for x in values.split()
            ]
            self.assertAllEqual(features[name][0], values, name)

    def test_lifting(self):
        tokens = ragged([[7, 8], []], 1)
        self.assertEqual(
            layout.one_segment(tokens).to_list(), [[[[7, 8]]], [[[]]]]
        )
        units = ragged([[[7, 8], [9]], []], 2)
        self.assertEqual(
            layout.one_group(units).to_list(), [[[[7, 8], [9]]], [[]]]
        )
        self.assertEqual(
            layout.groups_of_one(units).to_list(), [[[[7, 8]], [[9]]], []]
        )
        self.assertEqual(
            layout.constant_tokens([5, 6], 2).to_list(), [[5, 6], [5, 6]]
        )

    def test_docstring_example(self):
        engine = LayoutEngine(
            [
                Section(
                    "question",
                    token_type_id=3,
                    token_global=GlobalToken(3),
                    cut="keep",
                ),
                Section(
                    "text",
                    token_type_id=1,
                    group_global=GlobalToken(5),
                    segment_global=GlobalToken(1),
                ),
            ],
            long_length=8,
            global_length=8,
        )
        made = engine(
            {
                "question": layout.one_segment(ragged([[51, 52]], 1)),
                "text": ragged([[[[61, 62]], [[71], [72]]]], 3),
            }
        )
        self.assertFeatures(
            made.features,
            long_token_ids="51 52 61 62 71 72 0 0",
            long_token_type_ids="3 3 1 1 1 1 0 0",
            long_sentence_ids="0 1 3 3 5 6 -1 -1",
            long_paragraph_ids="-1 -1 2 2 4 4 -1 -1",
            long_paragraph_breakpoints="0 1 0 1 0 1 0 0",
            global_token_ids="3 3 5 1 5 1 1 0",
            global_paragraph_breakpoints="0 1 0 1 0 0 1 0",
        )

    @parameterized.parameters((14, 12), (None, None))
    def test_wikihop_table(self, long_length, global_length):
        """The worked example of the original code's description."""
        engine = LayoutEngine(WIKIHOP, long_length, global_length)
        made = engine(
            {
                "candidates": layout.groups_of_one(
                    ragged([[[21], [22, 23]]], 2)
                ),
                "query": layout.one_segment(ragged([[31, 32]], 1)),
                "documents": ragged([[[[41, 21], [42]], [[22, 23, 43]]]], 3),
            },
            links=[
                Link(
                    "candidates", ragged([[[[0]], [[1, 1]]]], 3), "candidates"
                ),
                Link(
                    "documents",
                    ragged([[[[-1, 0], [-1]], [[1, 1, -1]]]], 3),
                    "candidates",
                ),
            ],
        )
        expected = {
            "long_token_ids": "21 22 23 31 32 41 21 42 22 23 43 0 0 0",
            "long_token_type_ids": "4 4 4 3 3 1 1 1 1 1 1 0 0 0",
            "long_sentence_ids": "0 1 1 2 3 5 5 6 8 8 8 -1 -1 -1",
            "long_paragraph_ids": "-1 -1 -1 -1 -1 4 4 4 7 7 7 -1 -1 -1",
            "long_paragraph_breakpoints": "1 0 1 0 1 0 0 1 0 0 1 0 0 0",
            "l2g_linked_ids": "0 1 1 -1 -1 -1 0 -1 1 1 -1 -1 -1 -1",
            "global_token_ids": "4 4 3 3 5 1 1 5 1 0 0 0",
            "global_token_type_ids": "6 6 5 5 7 0 0 7 0 0 0 0",
            "global_paragraph_breakpoints": "1 1 0 1 0 0 1 0 1 0 0 0",
        }
        if long_length is None:
            # Without lengths, without the three positions of padding.
            expected = {
                name: " ".join(values.split()[:-3])
                for name, values in expected.items()
            }
        self.assertCountEqual(made.features, expected)
        self.assertFeatures(made.features, **expected)

    def test_hotpotqa_table(self):
        """The worked example of the original code's description."""
        made = LayoutEngine(HOTPOTQA, 14, 13)(hotpotqa_contents())
        self.assertFeatures(
            made.features,
            long_token_ids="101 51 52 61 71 72 73 81 82 91 0 0 0 0",
            long_sentence_ids="-1 1 2 4 5 5 6 8 8 9 -1 -1 -1 -1",
            long_paragraph_ids="-1 -1 -1 3 3 3 3 7 7 7 -1 -1 -1 -1",
            long_paragraph_breakpoints="1 0 1 0 0 0 1 0 0 1 0 0 0 0",
            long_token_type_ids="1 3 3 2 1 1 1 2 2 1 0 0 0 0",
            global_token_ids="101 3 3 5 1 1 1 5 1 1 0 0 0",
            global_paragraph_breakpoints="1 0 1 0 0 0 1 0 0 1 0 0 0",
        )
        # The description's global_paragraph_ids and global_sentence_ids (a
        # title is segment 0 here) follow from the sources.
        sources = made.global_sources[0].numpy()
        paragraph = np.where(sources[:, 0] == 2, sources[:, 1], -1)
        self.assertAllEqual(
            paragraph, [-1, -1, -1, 0, 0, 0, 0, 1, 1, 1, -1, -1, -1]
        )
        sentence = np.where(sources[:, 2] > 0, sources[:, 2] - 1, -1)
        self.assertAllEqual(
            sentence, [-1, -1, -1, -1, -1, 0, 1, -1, -1, 0, -1, -1, -1]
        )

    def test_hotpotqa_cut_keeps_true_indices(self):
        # The first sentence of the first paragraph does not fit, nor does the
        # title of the second; what is shorter does.
        contents = hotpotqa_contents()
        contents["paragraphs"] = ragged(
            [[[[61], [71, 72, 74], [73]], [[81, 82], [91]]]], 3
        )
        made = LayoutEngine(HOTPOTQA, 6, 13)(contents)
        self.assertFeatures(
            made.features,
            long_token_ids="101 51 52 61 73 91",
            long_sentence_ids="-1 1 2 4 5 7",
            long_paragraph_ids="-1 -1 -1 3 3 6",
            long_paragraph_breakpoints="1 0 1 0 1 1",
            global_token_ids="101 3 3 5 1 1 5 1 0 0 0 0 0",
            global_paragraph_breakpoints="1 0 1 0 0 1 0 1 0 0 0 0 0",
        )
        # Section, group, segment: what was skipped does not shift them.
        self.assertAllEqual(
            made.global_sources[0, 3:8, :3],
            [[2, 0, -1], [2, 0, 0], [2, 0, 2], [2, 1, -1], [2, 1, 1]],
        )
        counts = made.counts["paragraphs"]
        self.assertAllEqual(
            [x[0] for x in counts],
            # tokens, kept, segments, kept, groups, kept
            [8, 3, 5, 3, 2, 2],
        )

    def test_natural_questions_table(self):
        """The worked example of the original code's description.

        But for the last [SEP], which has no global token here.
        """
        question = {"token_global": GlobalToken(35, 2), "breaks": False}
        engine = LayoutEngine(
            [
                Section(
                    "cls",
                    token_global=GlobalToken(101, 1),
                    breaks=False,
                    cut="keep",
                ),
                Section("question", cut="keep", max_tokens=2, **question),
                Section("sep", cut="keep", **question),
                Section(
                    "candidates", segment_global=GlobalToken(1), breaks=False
                ),
                Section("end", cut="keep"),
            ],
            12,
            8,
        )

        def fixed(token):
            return layout.one_segment(layout.constant_tokens([token], 1))

        made = engine(
            {
                "cls": fixed(101),
                # The third is over the limit of a question.
                "question": layout.one_segment(ragged([[11, 12, 13]], 1)),
                "sep": fixed(102),
                "candidates": layout.one_group(
                    ragged([[[201, 202, 203], [204, 205, 206]]], 2)
                ),
                "end": fixed(102),
            }
        )
        self.assertFeatures(
            made.features,
            long_token_ids="101 11 12 102 201 202 203 204 205 206 102 0",
            long_sentence_ids="0 1 2 3 4 4 4 5 5 5 -1 -1",
            long_paragraph_breakpoints="0 0 0 0 0 0 0 0 0 0 1 0",
            global_token_ids="101 35 35 35 1 1 0 0",
            global_token_type_ids="1 2 2 2 0 0 0 0",
            global_paragraph_breakpoints="0 0 0 0 0 1 0 0",
        )
        # Which of the document's pieces a token is, for its word.
        self.assertAllEqual(
            made.long_sources[0, 4:10, 2:],
            [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]],
        )

    def test_contract_with_clauses(self):
        """An invented structure: clauses of the sections of a contract.

        Sections get one global token each, clauses none; the parties are
        global tokens without any text, linked to where they are named. Local
        attention goes on from section to section.
        """
        engine = LayoutEngine(
            [
                Section("parties", group_global=GlobalToken(8), in_long=False),
                Section(
                    "sections",
                    token_type_id=2,
                    group_global=GlobalToken(9, 4),
                    breaks=False,
                ),
            ],
            8,
            5,
        )
        made = engine(
            {
                "parties": ragged([[[], []]], 3),
                "sections": ragged([[[[11, 12], [13]], [[14, 15]]]], 3),
            },
            links=[
                Link(
                    "sections",
                    ragged([[[[-1, 1], [0]], [[1, -1]]]], 3),
                    "parties",
                    "group",
                    feature="party_ids",
                ),
                Link(
                    "sections",
                    ragged([[[[-1, -1], [-1]], [[0, -1]]]], 3),
                    "sections",
                    "group",
                    feature="reference_ids",
                ),
            ],
        )
        self.assertFeatures(
            made.features,
            long_token_ids="11 12 13 14 15 0 0 0",
            long_token_type_ids="2 2 2 2 2 0 0 0",
            long_sentence_ids="-1 -1 -1 -1 -1 -1 -1 -1",
            long_paragraph_ids="2 2 2 3 3 -1 -1 -1",
            long_paragraph_breakpoints="0 0 0 0 1 0 0 0",
            party_ids="-1 1 0 1 -1 -1 -1 -1",
            reference_ids="-1 -1 -1 2 -1 -1 -1 -1",
            global_token_ids="8 8 9 9 0",
            global_token_type_ids="0 0 4 4 0",
            global_paragraph_breakpoints="1 1 0 1 0",
        )

    def test_links_to_tokens_and_to_what_was_cut(self):
        engine = LayoutEngine(
            [
                Section("words", token_global=GlobalToken(3), cut="keep"),
                Section("text"),
            ],
            5,
            2,
        )
        made = engine(
            {
                "words": layout.one_segment(ragged([[31, 32, 33], [34]], 1)),
                "text": layout.one_segment(ragged([[1, 2, 3], [4, 5, 6]], 1)),
            },
            links=[
                Link(
                    "text",
                    layout.one_segment(ragged([[2, 1, 0], [-1, 0, 0]], 1)),
                    "words",
                    "token",
                )
            ],
        )
        # The third word is cut, for there are two global positions.
        self.assertAllEqual(
            made.features["long_token_ids"],
            [[31, 32, 1, 2, 3], [34, 4, 5, 6, 0]],
        )
        self.assertAllEqual(
            made.features["l2g_linked_ids"],
            [[-1, -1, -1, 1, 0], [-1, -1, 0, 0, -1]],
        )
        self.assertAllEqual(made.counts["words"].kept_tokens, [2, 1])

    def test_nothing(self):
        engine = LayoutEngine(WIKIHOP, 4, 3)
        empty = {section.name: ragged([[]], 3) for section in WIKIHOP}
        made = engine(empty)
        self.assertAllEqual(made.features["long_token_ids"], [[0] * 4])
        self.assertAllEqual(made.features["l2g_linked_ids"], [[-1] * 4])
        self.assertAllEqual(made.long_sources, -np.ones([1, 4, 4]))
        no_records = {section.name: ragged([], 3) for section in WIKIHOP}
        self.assertEqual(
            engine(no_records).features["global_token_ids"].shape, [0, 3]
        )

    def test_no_global_tokens(self):
        made = LayoutEngine([Section("text", 2)], 3, 2)(
            {"text": layout.one_segment(ragged([[7, 8]], 1))}
        )
        self.assertFeatures(
            made.features,
            long_token_ids="7 8 0",
            long_sentence_ids="-1 -1 -1",
            long_paragraph_breakpoints="0 1 0",
            global_token_ids="0 0",
            global_paragraph_breakpoints="0 0",
        )

    def test_empty_units(self):
        """A paragraph without sentences, a sentence without tokens."""
        made = LayoutEngine(WIKIHOP, 4, 6)(
            {
                "candidates": ragged([[]], 3),
                "query": ragged([[[[]]]], 3),
                "documents": ragged([[[], [[]], [[7]]]], 3),
            }
        )
        self.assertFeatures(
            made.features,
            long_token_ids="7 0 0 0",
            long_sentence_ids="4 -1 -1 -1",
            long_paragraph_ids="3 -1 -1 -1",
            global_token_ids="5 5 1 5 1 0",
            global_paragraph_breakpoints="1 0 1 0 1 0",
        )

    def _random_contents(self, rng, batch):
        def tokens(most):
            return [rng.randint(1, 99) for _ in range(rng.randint(0, most))]

        return {
            "candidates": [
                [[tokens(3)] for _ in range(rng.randint(0, 4))]
                for _ in range(batch)
            ],
            "query": [[[tokens(5)]] for _ in range(batch)],
            "documents": [
                [
                    [tokens(6) for _ in range(rng.randint(0, 5))]
                    for _ in range(rng.randint(0, 4))
                ]
                for _ in range(batch)
            ],
        }

    def test_sources_and_ids_of_random_content(self):
        """Whatever is cut, what is said of a token holds."""
        rng = random.Random(1)
        names = [section.name for section in WIKIHOP]
        engine = LayoutEngine(WIKIHOP, 24, 16)
        spec = tf.RaggedTensorSpec([None] * 4, tf.int32, ragged_rank=3)
        call = tf.function(
            engine.__call__, input_signature=[{name: spec for name in names}]
        )
        for _ in range(20):
            batch = rng.randint(1, 4)
            contents = self._random_contents(rng, batch)
            made = call(
                {name: ragged(values, 3) for name, values in contents.items()}
            )
            features = {k: v.numpy() for k, v in made.features.items()}
            for row in range(batch):
                long = made.long_sources[row].numpy()
                top = [tuple(x) for x in made.global_sources[row].numpy()]
                for place, (s, g, t, k) in enumerate(long):
                    token = features["long_token_ids"][row, place]
                    if s < 0:
                        self.assertEqual(token, 0)
                        continue
                    self.assertEqual(token, contents[names[s]][row][g][t][k])
                    sentence = features["long_sentence_ids"][row, place]
                    finest = (s, g, t, k if s == 1 else -1)
                    self.assertEqual(top[sentence], finest)
                    paragraph = features["long_paragraph_ids"][row, place]
                    if s == 2:
                        self.assertEqual(top[paragraph], (s, g, -1, -1))
                    else:
                        self.assertEqual(paragraph, -1)
                # In order, and without holes.
                for sources in (long.tolist(), top):
                    used = [tuple(x) for x in sources if x[0] >= 0]
                    self.assertEqual(used, sorted(used))
                    self.assertEqual(
                        used, [tuple(x) for x in sources][: len(used)]
                    )
                kept = sum(made.counts[n].kept_tokens[row] for n in names)
                self.assertEqual(kept, (long[:, 0] >= 0).sum())

    def test_result_does_not_depend_on_the_batch(self):
        rng = random.Random(2)
        contents = self._random_contents(rng, 4)
        engine = LayoutEngine(WIKIHOP, 20, 12)
        together = engine({k: ragged(v, 3) for k, v in contents.items()})
        for row in range(4):
            alone = engine(
                {k: ragged([v[row]], 3) for k, v in contents.items()}
            )
            for name, values in alone.features.items():
                self.assertAllEqual(values[0], together.features[name][row])

    def test_lengths_are_static_where_known(self):
        engine = LayoutEngine(WIKIHOP, 20, None)
        spec = tf.RaggedTensorSpec([None] * 4, tf.int32, ragged_rank=3)

        @tf.function(input_signature=[{s.name: spec for s in WIKIHOP}])
        def make(contents):
            features = engine(contents).features
            self.assertEqual(features["l2g_linked_ids"].shape[1], 20)
            self.assertIsNone(features["global_token_ids"].shape[1])
            return features

        make.get_concrete_function()

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "'a': cut='x'.*balanced"):
            Section("a", cut="x")
        with self.assertRaisesRegex(ValueError, "max_tokens"):
            Section("a", in_long=False, max_tokens=3)
        with self.assertRaisesRegex(ValueError, "different names"):
            LayoutEngine([Section("a"), Section("a")], 1, 1)
        with self.assertRaisesRegex(ValueError, "negative"):
            LayoutEngine([Section("a")], -1, 1)
        with self.assertRaisesRegex(ValueError, "target_level"):
            Link("a", ragged([], 3), "a", "word")
        engine = LayoutEngine([Section("a")], 1, 1)
        with self.assertRaisesRegex(ValueError, r"contents for \['a'\]"):
            engine({"b": ragged([], 3)})
        with self.assertRaisesRegex(ValueError, "'a' must be ragged"):
            engine({"a": ragged([[1]], 1)})
        with self.assertRaisesRegex(ValueError, "'a' to 'b'"):
            engine({"a": ragged([], 3)}, [Link("a", ragged([], 3), "b")])

    def test_sizes_that_do_not_match(self):
        engine = LayoutEngine([Section("a"), Section("b")], 4, 1)
        spec = tf.RaggedTensorSpec([None] * 4, tf.int32, ragged_rank=3)

        @tf.function(input_signature=[spec] * 3)
        def call(a, b, targets):
            engine({"a": a, "b": b}, [Link("a", targets, "b")])

        one, two = ragged([[[[1]]]], 3), ragged([[[[1]]], [[[1]]]], 3)
        call(one, one, one)
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, "Records of the content of .*b"
        ):
            call(two, one, two)
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, "Targets of a link of .*a"
        ):
            call(one, one, two)


if __name__ == "__main__":
    tf.test.main()
