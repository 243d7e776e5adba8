import tempfile

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils.text import tokenizers
from etcmodel.inspection import map_records
from testing import attention_maps
from testing import small_read_twice
from testing.tasks import write_test_vocab

_NAMES = {"title": "mine", "summary": (), "answers": ()}


class MapLayoutTest(tf.test.TestCase):
    """Tests a custom layout."""

    def setUp(self):
        super().setUp()
        vocab_file = write_test_vocab(tempfile.mkdtemp(), attention_maps.WORDS)
        tokenizer = tokenizers.WordpieceTokenizer(vocab_file)
        self.example = attention_maps.make_example(tokenizer, num_layers=1)

    def _map(self, rows=None):
        encoder, tokenizer, *rest = self.example
        return map_records.map_layout(
            encoder,
            tokenizer,
            attention_maps.SPEC,
            *rest,
            lambda section, group, unit: f"{section} {group}.{unit}",
            rows,
            **_NAMES,
        )

    def test_what_the_model_was_given(self):
        found = self._map()
        text = "".join(x.space + x.text for x in found.tokens)
        # A block has no space before its first token. "<b>" is three words.
        self.assertEqual("a cityJan lives in <b>Brno</b>.It isa", text)
        self.assertEqual(
            [
                ("topics 0.0", "question"),
                ("story 0.-1", "paragraph"),
                ("story 0.0", "sentence"),
                ("story 1.-1", "paragraph"),
                ("story 1.0", "sentence"),
                ("story 1.1", "sentence"),
            ],
            [tuple(x) for x in found.global_tokens],
        )
        self.assertEqual(
            [
                (0, 2, [0], "topics"),
                (2, 14, [1, 2], "story"),
                (14, 16, [3, 4], ""),
                (16, 17, [5], ""),
            ],
            [
                (x.first, x.last, [*x.global_tokens], x.heading)
                for x in found.blocks
            ],
        )
        # "Brno" is token 8 of the text, after 6 global ones.
        self.assertEqual([(14, 0, "topic")], [tuple(x) for x in found.links])
        self.assertEqual(
            [("story", "city city city", 3)], [tuple(x) for x in found.cuts]
        )

    def test_attention_in_numpy(self):
        expected = attention_maps.attention_of_first_layer(self.example)[1]
        found = self._map(rows=[14])
        self.assertEqual([14], found.rows)
        number = found.num_tokens
        # Two global tokens are padding, which the map leaves out.
        keep = [*range(6), *range(8, 8 + number - 6)]
        for key, value in found.reads(14, 0, "2").items():
            self.assertAllClose(expected[16][keep][key], value, 1e-4)
        self.assertGreater(sum(found.reads(14, 0, "2").values()), 0.8)
        with self.assertRaisesRegex(ValueError, "are 0 to 99, expected .* 22"):
            self._map(rows=[99, 0])


class MapSegmentsTest(tf.test.TestCase):
    def test_segments_and_memories(self):
        """The second segment's text starts with the first one's last token."""
        words = "who jan lives in brno ."
        vocab_file = write_test_vocab(tempfile.mkdtemp(), words)
        tokenizer = tokenizers.WordpieceTokenizer(vocab_file)
        model = small_read_twice.make_model(
            **small_read_twice.PAPER, vocab_size=tokenizer.vocab_size
        )
        special = tokenizer.special_ids
        prefix = [special["cls"], *tokenizer.tokenize("who").numpy()]
        prefix.append(special["separator"])
        text = tokenizer.tokenize("jan lives in brno .").numpy().tolist()
        inputs = {
            "token_ids": [prefix + text[:3], [*prefix, *text[2:4], 0]],
            "block_ids": [1, 1],
            "block_pos": [1, 2],
            "prefix_length": [3, 3],
            "annotation_begins": [[3], [4]],
            "annotation_ends": [[4], [4]],
            "annotation_labels": [[7], [8]],
        }
        inputs = {x: np.array(y, np.int32) for x, y in inputs.items()}
        found = map_records.map_segments(
            model,
            tokenizer,
            inputs,
            {"question": "Who", "document": "Jan lives in Brno."},
            **_NAMES,
        )
        self.assertEqual(["Segment 1", "Segment 2"], found.segments)
        shown = [
            "".join(x.space + x.text for x in found.tokens[y.first : y.last])
            for y in found.blocks
        ]
        self.assertEqual(
            ["[CLS] Who [SEP]", "Jan lives in", "[CLS] Who [SEP]", "in Brno"],
            shown,
        )
        self.assertEqual([0, None, 1, None], [x.segment for x in found.blocks])
        self.assertEqual(
            [("Jan lives", 0), ("Brno", 1)], [tuple(x) for x in found.memories]
        )
        self.assertEqual([("document", ".", 1)], [tuple(x) for x in found.cuts])
        # The default layer attends to memories. Node 12 is the second segment.
        self.assertEqual(
            "Second read, memories", found.layers[found.default_layer].label
        )
        # The nodes 13 and 14 are memories, which follow tokens and segments.
        self.assertContainsSubset(found.reads(12), {13, 14})
        few = map_records.map_segments(
            model, tokenizer, inputs, {}, max_tokens=6, **_NAMES
        )
        self.assertLen(few.tokens, 6)
        # The map keeps memories of segments that it leaves out.
        self.assertEqual(
            [("jan lives", 0), ("Segment 2", 1)],
            [tuple(x) for x in few.memories],
        )


if __name__ == "__main__":
    tf.test.main()
