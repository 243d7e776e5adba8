import tempfile
from concurrent import futures

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.text import tokenizers
from etcmodel.inspection import attention_scores as scores_lib
from testing import attention_maps
from testing import small_read_twice
from testing.tasks import write_test_vocab


def dense(rows, number):
    """Converts sparse rows to `[rows, number]`."""
    found = np.zeros([len(rows.keys), number])
    for row, keys, values in zip(found, rows.keys, rows.values, strict=True):
        row[keys[keys >= 0]] = values[keys >= 0]
    return found


class KeepLargestTest(tf.test.TestCase):
    def test_largest_and_the_rest(self):
        found = scores_lib.keep_largest(
            [[0.1, 0.6, 0.25, 0.05], [0.0, 0.99, 0.01, 0.0]],
            np.array([[4, 5, 6, 7], [5, 6, 7, 8]]),
            scores_lib.Limits(2, 0.02),
        )
        self.assertAllEqual([[5, 6], [6, -1]], found.keys)
        self.assertAllClose([[0.6, 0.25], [0.99, 0.0]], found.values)
        self.assertAllClose([0.15, 0.01], found.rest)


class EtcTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        vocab_file = write_test_vocab(tempfile.mkdtemp(), attention_maps.WORDS)
        tokenizer = tokenizers.WordpieceTokenizer(vocab_file)
        self.example = attention_maps.make_example(tokenizer)

    def test_probabilities_of_a_layer(self):
        """Compares all rows with NumPy; a row and its rest sum to 1."""
        example = self.example
        # [heads, tokens, tokens]
        expected = attention_maps.attention_of_first_layer(example)
        found = scores_lib.read_etc(example.encoder, example.features)
        self.assertEqual(
            ["All layers", "Layer 1", "Layer 2"], [x.label for x in found]
        )
        number = expected.shape[1]
        self.assertEqual(["average", "1", "2"], [*found[1].heads])
        for name, wanted in (
            ("average", expected.mean(axis=0)),
            ("1", expected[0]),
            ("2", expected[1]),
        ):
            rows = found[1].heads[name]
            limits = (
                scores_lib.OF_AVERAGE
                if name == "average"
                else scores_lib.OF_HEADS
            )
            values = dense(rows, number)
            is_kept = values > 0
            # Any of several equal probabilities may be kept.
            self.assertAllClose(wanted[is_kept], values[is_kept], 1e-4, 1e-5)
            self.assertAllEqual(
                np.minimum((wanted >= limits.least).sum(1), limits.number),
                is_kept.sum(axis=1),
            )
            dropped = np.where(is_kept, 0, wanted).max(axis=1)
            least = np.where(is_kept, wanted, 1).min(axis=1)
            self.assertAllLessEqual(dropped - least, 1e-6)
            self.assertAllClose(
                np.ones([number]), rows.rest + rows.values.sum(axis=1)
            )
        means = [dense(x.heads["average"], number) for x in found]
        # Some of the smallest probabilities are left out.
        self.assertAllClose(means[0], (means[1] + means[2]) / 2, atol=0.004)
        blocks = example.encoder.global_local_transformer_layers
        for block in blocks.fused_att_layers:
            self.assertIsNone(block.inner_layer.score_observer)

    def test_chosen_rows(self):
        every, some = (
            scores_lib.read_etc(
                self.example.encoder, self.example.features, rows
            )
            for rows in (None, [1, 8, 9])
        )
        for one, other in zip(every, some, strict=True):
            for name, rows in other.heads.items():
                for x, y in zip(one.heads[name], rows, strict=True):
                    self.assertAllClose(x[[1, 8, 9]], y)

    def test_calls_in_other_threads(self):
        """Another thread can call the model, or observe it, meanwhile."""
        encoder, features = self.example.encoder, self.example.features
        stack = encoder.global_local_transformer_layers
        layer = stack.fused_att_layers[0].inner_layer
        expected = scores_lib.read_etc(encoder, features)
        seen = []
        with futures.ThreadPoolExecutor() as threads:
            with scores_lib.observing([(layer, lambda *x: seen.append(x))]):
                call = threads.submit(encoder, features, training=False)
                waiting = threads.submit(scores_lib.read_etc, encoder, features)
                call.result()
                self.assertEqual([], seen)
                self.assertFalse(waiting.done())
                encoder(features, training=False)
                self.assertLen(seen, 1)
            found = waiting.result()
        for one, other in zip(expected, found, strict=True):
            for name, rows in other.heads.items():
                self.assertAllClose(one.heads[name].values, rows.values)


class ReadTwiceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("new_layers", "new_layers_cross_attention")
    def test_both_reads(self, kind):
        """Compares probabilities with the scores that the model returns."""
        model = small_read_twice.make_model(
            **small_read_twice.SECOND_READS[kind]
        )
        batch = small_read_twice.make_batch()
        batch = {
            name: x[:3] for name, x in batch.items() if "annot" not in name
        }
        lengths = [6, 6, 4]
        found = scores_lib.read_segments(model, batch, lengths)
        _, expected = model(batch, return_attention_scores=True)
        layers = {x.label: x.heads["1"] for x in found.layers}
        (last,) = expected["second_read"]
        side = "Second read, layer 1"
        if kind == "new_layers_cross_attention":
            side += ", memories"
        self.assertAllEqual([1, 2, 3], found.memory_positions)
        # Token 2 of the second segment: 16 tokens and 3 segments come first.
        tokens = dense(layers["First read, layer 1"], 22)[8]
        first = expected["first_read"][0]["main"][1, 0, 2]
        self.assertAllClose(first, tokens[6:12], atol=0.0101)
        self.assertAllClose(0.0, tokens[:6].sum() + tokens[12:].sum())
        memories = dense(layers[side], 22)
        self.assertAllClose(
            last["side"][1, 0, 2], memories[8, 19:], atol=0.0101
        )
        # The row of the last segment is the mean of its four tokens.
        self.assertAllClose(
            np.mean(last["side"][2, 0, :4], axis=0),
            memories[18, 19:],
            atol=0.0101,
        )


if __name__ == "__main__":
    tf.test.main()
