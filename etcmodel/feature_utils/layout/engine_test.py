"""Tests of the layout engine with worked examples."""

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import layout
from etcmodel.feature_utils.layout import GlobalToken
from etcmodel.feature_utils.layout import LayoutEngine
from etcmodel.feature_utils.layout import LayoutSpec
from etcmodel.feature_utils.layout import Link
from etcmodel.feature_utils.layout import Section
from etcmodel.feature_utils.layout import Value
from etcmodel.feature_utils.layout.contents import constant_tokens

# The layout of WikiHop (paper, Appendix C).
WIKIHOP_SECTIONS = (
    Section("candidates", 4, unit_global=GlobalToken(4, 6), cut="keep"),
    Section("query", 3, token_global=GlobalToken(3, 5), cut="keep"),
    Section(
        "documents",
        1,
        group_global=GlobalToken(5, 7),
        unit_global=GlobalToken(1, 0),
        cut="balanced",
    ),
)

WIKIHOP = LayoutSpec(
    WIKIHOP_SECTIONS,
    links=(
        # All tokens of a candidate are linked to it.
        Link(
            "own",
            "candidates",
            "candidates",
            level="unit",
            feature="l2g_linked_ids",
        ),
        Link("mentions", "documents", "candidates", feature="l2g_linked_ids"),
    ),
)

# The layout of HotpotQA: [CLS] has a global token, but is not linked to it.
# Titles have their own token type.
HOTPOTQA = LayoutSpec(
    (
        Section(
            "cls",
            1,
            token_global=GlobalToken(101),
            link_sentences=False,
            cut="keep",
        ),
        Section(
            "question", 3, token_global=GlobalToken(3), cut="keep", max_tokens=2
        ),
        Section(
            "paragraphs",
            1,
            first_unit_token_type_id=2,
            group_global=GlobalToken(5),
            unit_global=GlobalToken(1),
            cut="fit",
        ),
    )
)


def ragged(values, rank):
    return tf.ragged.constant(values, ragged_rank=rank, dtype=tf.int32)


class LayoutTest(tf.test.TestCase, parameterized.TestCase):
    def assertFeatures(self, features, **expected):
        for name, values in expected.items():
            values = [
                int(x) if x.lstrip("-").isdigit() else x for x in values.split()
            ]
            self.assertAllEqual(features[name][-1], values, name)

    @parameterized.parameters((14, 12), (None, None))
    def test_wikihop_table(self, long_length, global_length):
        """Uses the worked example in the description of the original code."""
        engine = LayoutEngine(WIKIHOP, long_length, global_length)
        made = engine(
            {
                "candidates": layout.groups_of_one(
                    ragged([[[21], [22, 23]]], 2)
                ),
                "query": layout.one_unit(ragged([[31, 32]], 1)),
                "documents": ragged([[[[41, 21], [42]], [[22, 23, 43]]]], 3),
            },
            targets={
                "own": ragged([[[0], [1]]], 2),
                "mentions": ragged([[[[-1, 0], [-1]], [[1, 1, -1]]]], 3),
            },
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
            # Without lengths, the inputs lack their three positions of padding.
            expected = {
                name: " ".join(values.split()[:-3])
                for name, values in expected.items()
            }
        self.assertCountEqual(made.features, expected)
        self.assertFeatures(made.features, **expected)

    def test_hotpotqa_cut_keeps_true_indices(self):
        # The first sentence of the first paragraph and the title of the second
        # paragraph do not fit; shorter units do. The question's third word
        # exceeds the maximum length of a question.
        made = LayoutEngine(HOTPOTQA, 7, 13)(
            {
                "cls": layout.one_unit(constant_tokens([101], 1)),
                "question": layout.one_unit(ragged([[51, 52, 53]], 1)),
                "paragraphs": ragged(
                    [[[[61], [71, 72, 74, 75], [73]], [[81, 82, 83], [91]]]], 3
                ),
            }
        )
        self.assertFeatures(
            made.features,
            long_token_ids="101 51 52 61 73 91 0",
            long_token_type_ids="1 3 3 2 1 1 0",
            long_sentence_ids="-1 1 2 4 5 7 -1",
            long_paragraph_ids="-1 -1 -1 3 3 6 -1",
            long_paragraph_breakpoints="1 0 1 0 1 1 0",
            global_token_ids="101 3 3 5 1 1 5 1 0 0 0 0 0",
            global_paragraph_breakpoints="1 0 1 0 0 1 0 1 0 0 0 0 0",
        )
        # Each row has section, group, unit (0 for a title) and token. Skipped
        # units do not shift these indices.
        nothing = [-1] * 4
        tokens = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 1]]
        self.assertAllEqual(
            made.global_sources[0],
            [
                *tokens,
                *([2, 0, -1, -1], [2, 0, 0, -1], [2, 0, 2, -1]),
                *([2, 1, -1, -1], [2, 1, 1, -1]),
                *[nothing] * 5,
            ],
        )
        self.assertAllEqual(
            made.long_sources[0],
            [*tokens, [2, 0, 0, 0], [2, 0, 2, 0], [2, 1, 1, 0], nothing],
        )
        self.assertAllEqual(
            [x[0] for x in made.counts["paragraphs"]],
            # Tokens, kept tokens, units, kept units, groups, kept groups.
            [10, 3, 5, 3, 2, 2],
        )
        self.assertAllEqual(made.counts["question"].kept_tokens, [2])

    def test_nothing(self):
        engine = LayoutEngine(LayoutSpec(WIKIHOP_SECTIONS), 4, 3)
        names = [section.name for section in WIKIHOP_SECTIONS]
        empty = {name: ragged([[]], 3) for name in names}
        made = engine(empty)
        self.assertAllEqual(made.features["long_token_ids"], [[0] * 4])
        self.assertAllEqual(made.features["l2g_linked_ids"], [[-1] * 4])
        self.assertAllEqual(made.long_sources, [[[-1] * 4] * 4])
        no_records = {name: ragged([], 3) for name in names}
        self.assertEqual(
            engine(no_records).features["global_token_ids"].shape, [0, 3]
        )

    def test_windows(self):
        """Puts a question before every window of a page.

        A window has 3 of the page's 7 tokens, and the stride is 2, so windows
        start at 0, 2 and 4. The second record has no page, but one window.
        """
        spec = LayoutSpec(
            [
                Section("question", 3, token_global=GlobalToken(3), cut="keep"),
                Section(
                    "page",
                    1,
                    group_global=GlobalToken(5),
                    unit_global=GlobalToken(1),
                    cut="windows",
                    stride=2,
                ),
                # Every record has the same token.
                Section("end", cut="keep", tokens=("separator",)),
            ],
        )
        page = ragged([[[[11, 12, 13], [14]], [[15, 16, 17]]], []], 3)
        question = layout.one_unit(ragged([[8, 9], [7, 6]], 1))
        made = LayoutEngine(spec, 6, 6, {"separator": 2})(
            {"question": question, "page": page}
        )
        for name, values in {
            "long_token_ids": [
                [8, 9, 11, 12, 13, 2],
                [8, 9, 13, 14, 2, 0],
                [8, 9, 15, 16, 17, 2],
                [7, 6, 2, 0, 0, 0],
            ],
            "global_token_ids": [
                [3, 3, 5, 1, 0, 0],
                # The next paragraph needs two global tokens, so it does not
                # fit, and its token 15 is dropped.
                [3, 3, 5, 1, 1, 0],
                [3, 3, 5, 1, 0, 0],
                [3, 3, 0, 0, 0, 0],
            ],
        }.items():
            self.assertAllEqual(made.features[name], values, name)
        self.assertAllEqual(made.owner, [0, 0, 0, 1])
        self.assertEqual(made.windows["starts"].to_list(), [[0, 2, 4], [0]])
        # The second window has 2 tokens: another unit would need global tokens.
        self.assertEqual(made.windows["sizes"].to_list(), [[3, 2, 3], [0]])
        # Counts are per record: a token counts as kept if a window has it.
        self.assertAllEqual(made.counts["page"].kept_tokens, [7, 0])
        # The source of a window's token is its place in the record.
        self.assertAllEqual(made.long_sources[2, 3], [1, 1, 0, 1])

    def test_windows_that_share_the_last_global_token(self):
        spec = LayoutSpec(
            [
                Section(
                    "page",
                    unit_global=GlobalToken(1),
                    cut="windows",
                    share_last_global=True,
                ),
                Section(
                    "end", cut="keep", token_global=GlobalToken(2), tokens=(9,)
                ),
            ]
        )
        page = {"page": ragged([[[[11], [12], [13, 14]]]], 3)}
        made = LayoutEngine(spec, 6, 3)(page)
        self.assertFeatures(
            made.features,
            long_token_ids="11 12 13 14 9 0",
            long_sentence_ids="0 1 1 1 2 -1",
            global_token_ids="1 1 2",
            # The second and third unit share the page's last global token.
            global_paragraph_breakpoints="0 1 1",
        )
        # Without room in the global input, no global token can be shared.
        made = LayoutEngine(spec, 6, 1)(page)
        self.assertEqual(made.windows["sizes"].to_list(), [[0]])

    def test_errors(self):
        spec = LayoutSpec([Section("a")])
        with self.assertRaisesRegex(ValueError, "length is -1, expected 0"):
            LayoutEngine(spec, -1, 1)
        windows = LayoutSpec([Section("a", cut="windows")])
        with self.assertRaisesRegex(ValueError, "long_length is None. Set it"):
            LayoutEngine(windows, None, 1)
        named = LayoutSpec([Section("a", token_global=GlobalToken("dot"))])
        with self.assertRaisesRegex(ValueError, "'dot', .* of .'comma'"):
            LayoutEngine(named, 1, 1, {"comma": 5})
        engine = LayoutEngine(spec, 1, 1)
        with self.assertRaisesRegex(ValueError, r"contents` has .'b'.*\['a'\]"):
            engine({"b": ragged([], 3)})
        with self.assertRaisesRegex(ValueError, r"targets` has .'x'.* \[\]"):
            engine({"a": ragged([], 3)}, {"x": ragged([], 3)})
        with self.assertRaisesRegex(ValueError, "'a' must be ragged"):
            engine({"a": ragged([[1]], 1)})
        spec = LayoutSpec(
            [Section("a", token_global=GlobalToken(1))],
            [Link("x", "a", "a", "token", number=2)],
            [Value("y", "a", "group", shape=(3,))],
        )
        given = dict(
            contents={"a": ragged([[[[1]]]], 3)},
            targets={"x": ragged([[[[[0, 0]]]]], 3)},
            values={"y": ragged([[[1, 2, 3]]], 1)},
        )
        engine = LayoutEngine(spec, 1, 1)
        engine(**given)
        for name, value, error in (
            ("targets", {"x": ragged([[[[0]]]], 3)}, "Link 'x' .* every token"),
            ("values", {"y": ragged([[[1, 2]]], 1)}, r"Value 'y' .* \[3\] ins"),
            ("values", {"y": ragged([[[[1, 2, 3]]]], 2)}, "1 dimensions"),
        ):
            with self.assertRaisesRegex(ValueError, error):
                engine(**{**given, name: value})

    def test_sizes_that_do_not_match(self):
        spec = LayoutSpec(
            [Section("a"), Section("b", unit_global=GlobalToken(1))],
            [Link("x", "a", "b")],
        )
        engine = LayoutEngine(spec, 4, None)
        ids = tf.RaggedTensorSpec([None] * 4, tf.int32, ragged_rank=3)

        @tf.function(input_signature=[ids] * 3, autograph=False)
        def call(a, b, targets):
            made = engine({"a": a, "b": b}, {"x": targets})
            # Lengths are static where they are known.
            self.assertEqual(made.features["l2g_linked_ids"].shape[1], 4)
            self.assertIsNone(made.features["global_token_ids"].shape[1])

        one, two = ragged([[[[1]]]], 3), ragged([[[[1]]], [[[1]]]], 3)
        call(one, one, one)
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, "The content of .*b"
        ):
            call(two, one, two)
        many = ragged([[[[1], [2]]], [[[3]]]], 3)
        for targets in (two, ragged([[[[1]]], [[[1, 1]]]], 3)):
            # The number of targets is right in the batch, but not per record.
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError,
                "Link .*x.*for each token of .*a",
            ):
                contents = one if targets is two else many
                call(contents, contents, targets)


if __name__ == "__main__":
    tf.test.main()
