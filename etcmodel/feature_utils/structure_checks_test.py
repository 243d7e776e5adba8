import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import feature_utils

# Two packed texts and padding.
SENTENCES = dict(
    long_breakpoints=[0, 0, 1, 0, 0, 1, 0, 0],
    global_breakpoints=[0, 1, 0, 1, 0],
    sentence_ids=[0, 1, 1, 2, 3, -1, -1, -1],
)
# [CLS], a question of two tokens, a paragraph of two sentences, padding.
PARAGRAPHS = dict(
    long_paragraph_breakpoints=[1, 0, 1, 0, 0, 1, 0],
    long_paragraph_ids=[-1, -1, -1, 3, 3, 3, -1],
    long_sentence_ids=[-1, 1, 2, 4, 4, 5, -1],
    global_paragraph_breakpoints=[1, 0, 1, 0, 0, 1, 0],
    l2g_linked_ids=[-1, -1, 0, -1, 1, -1, -1],
)


def _call(make, features, **options):
    return make(
        **{name: tf.constant(x) for name, x in features.items()},
        local_radius=2,
        relative_pos_max_distance=1,
        **options,
    )


def _make_sentences(features):
    """Makes side inputs of two rows, of which the second is correct."""
    return _call(
        feature_utils.make_global_local_transformer_side_inputs,
        {k: [SENTENCES[k], x] for k, x in (SENTENCES | features).items()},
    )


def _make_paragraphs(features, **options):
    return _call(
        feature_utils.make_multihop_side_inputs,
        {k: [PARAGRAPHS[k], x] for k, x in (PARAGRAPHS | features).items()},
        **options,
    )


class StructureChecksTest(tf.test.TestCase, parameterized.TestCase):
    def _assert_refused(self, call, name, value):
        with self.assertRaisesRegex(
            ValueError, rf"(?s){name} is {value} in row 1 .*\. ?\n?Example"
        ):
            call()
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError,
            rf"{name}: expected .* \[1\] .* \[{value}\] \[Example",
        ):
            tf.function(lambda: call().g2g_att_mask)()

    @parameterized.parameters(
        # One input has no text, or one text less than the other input.
        ("long_breakpoints", [0] * 8, "long_breakpoints", 0),
        ("global_breakpoints", [0] * 5, "sentence_ids", 3),
        ("long_breakpoints", [0, 0, 0, 0, 0, 1, 0, 0], "long_breakpoints", 1),
        # A breakpoint is neither 0 nor 1.
        ("long_breakpoints", [0, 0, 2, 0, 0, 1, 0, 0], "long_breakpoints", 2),
        ("global_breakpoints", [0, 1, 0, -1, 0], "global_breakpoints", -1),
        # Sentence ids are shifted, belong to other texts, or are missing.
        ("sentence_ids", [1, 2, 2, 3, 4, 0, 0, 0], "sentence_ids", 4),
        ("sentence_ids", [10, 11, 11, 12, 13, 9, 9, 9], "sentence_ids", 13),
        ("sentence_ids", [0, 1, 1, 0, 1, -1, -1, -1], "sentence_ids", 1),
        ("sentence_ids", [0, 1, 1, 2, -100, -1, -1, -1], "sentence_ids", -100),
        ("sentence_ids", [-1] * 8, "sentence_ids", -1),
    )
    def test_wrong_sentences(self, name, values, blamed, found):
        self._assert_refused(
            lambda: _make_sentences({name: values}), blamed, found
        )

    @parameterized.parameters(
        ("sentence_ids", [0, 1, 1, 2, 3, -1, 999, -7]),
        # The second text is only [CLS] and [SEP], without sentences.
        ("sentence_ids", [0, -1, 0, -1, -1, -1, 0, 0]),
        # The whole row is padding.
        (None, None),
    )
    def test_right_sentences(self, name, values):
        features = {name: values}
        if name is None:
            features = {k: np.zeros_like(x) for k, x in SENTENCES.items()}
        _make_sentences(features)

    @parameterized.parameters(
        ("long_paragraph_breakpoints", [0] * 7, None, 0),
        ("global_paragraph_breakpoints", [0] * 7, "long_sentence_ids", 5),
        ("long_paragraph_breakpoints", [1, 0, 0, 3, 0, 1, 0], None, 3),
        # Ids name the global token of padding, or no token.
        ("long_sentence_ids", [-1, 2, 3, 5, 5, 6, -1], None, 6),
        ("long_paragraph_ids", [-1, -1, -1, 13, 13, 13, -1], None, 13),
        ("l2g_linked_ids", [-1, -1, -2, -1, 1, -1, -1], None, -2),
    )
    def test_wrong_paragraphs(self, name, values, blamed, found):
        self._assert_refused(
            lambda: _make_paragraphs({name: values}), blamed or name, found
        )

    def test_wrong_links(self):
        for source, ids in (
            ("long", [[-1] * 7, [6] + [-1] * 6]),
            ("global", [[-1] * 7, [-1] * 5 + [6, -1]]),
        ):
            links = [feature_utils.TypedLink(ids, source)]

            def call(links=links):
                return _make_paragraphs({}, links=links)

            self._assert_refused(call, r"links\[0\]", 6)

    @parameterized.parameters(
        # Ids after the last breakpoint are ignored.
        ("long_sentence_ids", [-1, 1, 2, 4, 4, 5, 77]),
        ("l2g_linked_ids", [-1, -1, 0, -1, 1, -1, -9]),
        # The record has no text.
        ("long_sentence_ids", [-1] * 7),
    )
    def test_right_paragraphs(self, name, values):
        features = {name: values}
        if values == [-1] * 7:
            features["long_paragraph_breakpoints"] = [0] * 7
        _make_paragraphs(features)

    def test_other_breakpoints_and_owners(self):
        with self.assertRaisesRegex(ValueError, "att_breakpoints is 2"):
            feature_utils.make_att_mask_from_breakpoints([[0, 2, 0]])
        with self.assertRaisesRegex(ValueError, "att_breakpoints is -1"):
            feature_utils.make_local_att_mask_from_breakpoints([[0, -1]], 1)
        with self.assertRaisesRegex(ValueError, "input_mask is 7"):
            feature_utils.make_att_mask_from_input_mask([[0, 7, 0]])
        with self.assertRaisesRegex(ValueError, "breakpoints is 5"):
            feature_utils.make_paragraph_positions(
                tf.constant([[0, 5]]), None, 9
            )
        # Without the check, the next row's first token would get the value.
        with self.assertRaisesRegex(ValueError, "owners is 2 in row 0"):
            feature_utils.take_first_owned(
                tf.constant([[4, 5], [6, 7]]), tf.constant([[0, 2], [0, 1]]), 2
            )


if __name__ == "__main__":
    tf.test.main()
