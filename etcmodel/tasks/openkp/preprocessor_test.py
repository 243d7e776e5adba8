"""Tests of OpenKP's preprocessor."""

from unittest import mock

import msgspec
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import openkp
from etcmodel.errors import RecordError
from etcmodel.feature_utils.text import plain_documents
from etcmodel.feature_utils.text import tokenizers
from etcmodel.readers.records import Source
from etcmodel.tasks.openkp.preprocessor import OpenKPPreprocessor
from etcmodel.tasks.openkp.task import TASK
from testing.records import RecordsTestCase
from testing.records import stored_values
from testing.tasks import encode_records

# From the tests of the original code, divided into two nodes.
_TEXT = "Star Trek Discovery Season 1 Jason Isaacs Jason Isaacs and Doug"


def _ids(text):
    vocab = [
        *tokenizers.WORDPIECE_RESERVED_TOKENS,
        *FeaturesTest.WORDS.split(),
    ]
    return [vocab.index(token) for token in text.split()]


def _record(spans=((0, 6), (6, 11)), text=_TEXT, annotations=None):
    return openkp.OpenKPRecord(
        id="http://a.com",
        words=tuple(text.split(" ")),
        nodes=tuple(
            openkp.Node(*span, tuple(20.0 * i + np.arange(20.0)))
            for i, span in enumerate(spans)
        ),
        annotations=annotations,
        source=Source("pages.jsonl"),
    )


class FeaturesTest(RecordsTestCase):
    TASK = TASK
    WORDS = "star trek discovery season 1 jason isaac and doug ##s"

    def _writer(self, long_length=16, global_length=4, fixed_block_size=0):
        return self.writer(
            long_length=long_length,
            global_length=global_length,
            fixed_block_size=fixed_block_size,
        )

    def _build(self, record, *sizes):
        """Returns the features of a record by name."""
        made = self._writer(*sizes).preprocess([record])
        values = {**made.layout.features, **made.layout.values, **made.context}
        return {name: x[0].numpy().tolist() for name, x in values.items()}

    def _label(self, annotations, *sizes, split="train", **record):
        """Returns the stored labels (None without an example) and counts."""
        record = _record(annotations=annotations, **record)
        (written,) = encode_records(self._writer(*sizes), [record], split)
        if not written.examples:
            return None, written.counts
        stored = stored_values(written.examples[0])
        names = ("label_starts", "label_sizes")
        return [stored.get(x, []) for x in names], written.counts

    def test_small_example(self):
        """Reproduces the worked example of the original code."""
        got = self._build(_record(), 16, 4)
        pieces = "star trek discovery season 1 jason isaac ##s jason isaac ##s"
        pad = [0] * 3
        expected = {
            "long_token_ids": _ids(f"{pieces} and doug") + pad,
            "long_token_type_ids": [1] * 13 + pad,
            "long_sentence_ids": [0] * 6 + [1] * 7 + [-1] * 3,
            "long_paragraph_breakpoints": [0] * 12 + [1] + pad,
            "words": [*[1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 9, 10, 11], *pad],
            "global_token_ids": _ids("[unused0] [unused0]") + [0, 0],
            "global_paragraph_breakpoints": [0, 1, 0, 0],
        }
        for name, value in expected.items():
            self.assertEqual(value, got[name], name)
        self.assertAllEqual(
            np.concatenate([np.arange(40.0), np.zeros(40)]).reshape([4, 20]),
            got["visual"],
        )
        # "jason" is word 5, "isaacs" 6; "jason isaacs" crosses nodes.
        first = np.zeros([16, 5], np.int32)
        first[[7, 8], 0] = 2
        self.assertAllEqual(first, got["first_occurrences"])

    def test_fixed_blocks(self):
        """With fixed blocks, phrases may cross nodes, and nodes may be cut."""
        got = self._build(_record(), 16, 4, 4)
        self.assertEqual(
            [*np.repeat([0, 1, 2, 3], 4)[:13], -1, -1, -1],
            got["long_sentence_ids"],
        )
        self.assertEqual(_ids("[unused0] " * 4), got["global_token_ids"])
        self.assertAllEqual(np.zeros([4, 20]), got["visual"])
        # From the tests of the original code.
        labels, _ = self._label((("jason isaacs", "star trek"),), 16, 4, 4)
        self.assertEqual([[5, 0], [2, 2]], labels)
        self.assertAllEqual([2, 2], np.array(got["first_occurrences"])[7, :2])
        got = self._build(_record(), 8, 2, 4)
        self.assertEqual(
            _ids("star trek discovery season 1 jason isaac ##s"),
            got["long_token_ids"],
        )

    @parameterized.parameters(
        # A node that does not fit and all later ones are left out.
        ((12, 4), ((0, 6), (6, 11)), 6, 1),
        ((12, 1), ((0, 6), (6, 11)), 6, 1),
        ((12, 4), ((0, 1), (1, 11), (11, 11)), 1, 1),
        # If the first node is too long, it is truncated.
        ((12, 4), ((0, 11),), 12, 1),
    )
    def test_cuts(self, sizes, spans, tokens, nodes):
        got = self._build(_record(spans), *sizes)
        self.assertEqual(tokens, np.count_nonzero(got["long_token_ids"]))
        self.assertEqual(nodes, np.count_nonzero(got["global_token_ids"]))

    def test_words_in_no_node_and_without_tokens(self):
        got = self._build(
            _record(((1, 4), (4, 4), (5, 6)), "star trek \u200b 1  doug"), 6, 4
        )
        self.assertEqual([*_ids("trek 1 doug"), 0, 0, 0], got["long_token_ids"])
        self.assertEqual([1, 2, 3, 0, 0, 0], got["words"])
        # A node without words still has a global token.
        self.assertEqual([0, 0, 2, -1, -1, -1], got["long_sentence_ids"])
        self.assertEqual(3, np.count_nonzero(got["global_token_ids"]))

    def _request(self, starts, ends, looks):
        """Builds three pages of five words; the second has the given nodes.

        The other pages have one node for each of their first words.
        """
        size = len(starts)
        begins, behind = np.arange(size), np.arange(len(ends)) + 1
        made = self._writer(16, 4).preprocessor(
            [["star", "trek", "season", "1", "doug"]] * 3,
            tf.constant([begins, starts, begins]),
            tf.constant([behind, ends, behind]),
            tf.stack([tf.zeros_like(looks), looks, tf.zeros_like(looks)]),
        )
        kept = _ids("star trek season 1 doug")[:size]
        for row in (0, 2):
            tokens = made.layout.features["long_token_ids"][row]
            self.assertAllEqual(kept, tokens[:size])
        return made

    def _check_refused(self, *request):
        made = self._request(*request)
        self.assertAllEqual([False, True, False], made.outputs["is_refused"])
        for name in ("long_token_ids", "global_token_ids"):
            self.assertNotAny(made.layout.features[name][1], name)
        self.assertNotAny(made.layout.values["visual"][1])

    def assertNotAny(self, values, message=None):
        self.assertAllEqual(np.zeros_like(values), values, message)

    def test_impossible_nodes_are_refused(self):
        """The pages before and after the refused one are not affected."""
        for starts, ends in (
            ((0, 1), (2, 3)),
            ((3, 0), (4, 2)),
            ((2, -1), (1, -1)),
            ((0, -1, 3), (2, -1, 5)),
            # In the next cases, a node ends after the last word, or padding is
            # not -1.
            ((0, 3), (2, 6)),
            ((0, 7), (2, 7)),
            ((0, -5), (2, 5)),
            ((-(2**31), 0), (2**31 - 1, 1)),
        ):
            with self.subTest(starts=starts, ends=ends):
                self._check_refused(starts, ends, tf.zeros([len(starts), 20]))

    def test_features_that_are_not_finite_are_refused(self):
        looks = np.zeros([3, 20], np.float32)
        # The features of padding are ignored.
        looks[2] = np.nan
        made = self._request((0, 1, -1), (1, 2, -1), tf.constant(looks))
        self.assertAllEqual([False] * 3, made.outputs["is_refused"])
        for value in (np.nan, np.inf):
            looks[1, 8] = value
            self._check_refused((0, 1, -1), (1, 2, -1), tf.constant(looks))

    def test_impossible_record_raises(self):
        """Readers check files earlier, but not records made in Python."""
        writer = self._writer(16, 4)
        for split in ("train", "predict"):
            with self.assertRaisesRegex(
                RecordError, "pages.jsonl, record 0 .*not in order"
            ):
                encode_records(writer, [_record(((3, 6), (0, 2)))], split)

    def test_page_without_nodes(self):
        record = _record(spans=(), annotations=(("doug",),))
        got = self._build(record, 16, 4)
        self.assertEqual([0] * 16, got["long_token_ids"])
        (written,) = encode_records(self._writer(16, 4), [record], "predict")
        self.assertLen(written.examples, 1)

    def test_labels(self):
        """Labels first occurrences of the annotation with the most phrases."""
        labels, counts = self._label(
            (("doug",), ("STAR TREK", "jason isaacs", "Jason", "x y z a b c")),
            *(16, 4),
        )
        # The example of the original code, with "jason" added.
        self.assertEqual([[0, 7, 5], [2, 2, 1]], labels)
        for name, number in (
            ("keyphrases", 4),
            ("keyphrases_found", 3),
            ("keyphrases_too_long", 1),
            ("pages_without_a_keyphrase_in_the_text", 0),
            ("nodes", 2),
            ("tokens", 13),
        ):
            self.assertEqual(number, counts[name], name)

    def test_of_text(self):
        """Titles become nodes that look like headings, paragraphs like text."""
        made, _ = OpenKPPreprocessor.of_text(
            tf.constant(["# A title\nText (here).\n\nMore", "", "b"])
        )
        self.assertAllEqual(
            [
                [b"A", b"title", b"Text", b"(here).", b"More"],
                5 * [b""],
                [b"b", *4 * [b""]],
            ],
            made["words"],
        )
        for name, expected in (
            ("node_starts", [[0, 2, 4], [-1, -1, -1], [0, -1, -1]]),
            ("node_ends", [[2, 4, 5], [-1, -1, -1], [1, -1, -1]]),
        ):
            self.assertAllEqual(expected, made[name])
        self.assertAllEqual([3, 3, 20], made["node_features"].shape)
        is_heading = openkp.FEATURES.index("is_heading")
        self.assertAllEqual(
            [[1, 0, 0], [-1, -1, -1], [0, -1, -1]],
            made["node_features"][..., is_heading],
        )

    def test_pages_of_one_url(self):
        record = msgspec.structs.replace(_record(), num_pages=3)
        (written,) = encode_records(self._writer(16, 4), [record], "predict")
        self.assertEqual(2, written.counts["pages_of_the_same_url"])

    def test_cut_keyphrases(self):
        for split, expected in (("train", None), ("dev", [[], []])):
            labels, counts = self._label((("doug",),), 12, 4, split=split)
            self.assertEqual(expected, labels)
            self.assertEqual(
                (1, 1, 1),
                (
                    counts["pages_without_a_keyphrase_in_the_text"],
                    counts["nodes_cut"],
                    counts["records_cut"],
                ),
            )
        self.assertEqual(
            [[], []], self._label((("doug",),), 16, 4, split="predict")[0]
        )

    def test_text_whose_padding_fills_the_memory(self):
        with (
            mock.patch.object(plain_documents, "_MAX_CELLS", 7),
            self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, "at most 7. Send fewer"
            ),
        ):
            OpenKPPreprocessor.of_text(tf.constant(["a b c d", "e"]))


if __name__ == "__main__":
    tf.test.main()
