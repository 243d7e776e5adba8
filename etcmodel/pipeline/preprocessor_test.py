import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils import layout
from etcmodel.pipeline import example_schema
from etcmodel.pipeline.preprocessor import Encoded
from etcmodel.pipeline.preprocessor import RecordView
from etcmodel.pipeline.preprocessor import count_cut
from etcmodel.pipeline.preprocessor import on_host
from testing import toy_task as toy
from testing.tasks import write_test_vocab
from testing.toy_task import make_preprocessor


class RecordViewTest(tf.test.TestCase):
    def test_takes_records_apart(self):
        builder = make_preprocessor(self.get_temp_dir(), long_length=2)
        batch = builder(tf.constant(["a bb ccc", "", "dddd"]))
        views = [RecordView(on_host(batch), i) for i in range(3)]
        self.assertEqual([2, 1, 1], [view.number for view in views])
        self.assertAllEqual([[0, 1], [2, -1]], views[0].features["words"])
        self.assertAllEqual([[0, -1]], views[2].features["words"])
        self.assertAllEqual([[0, 0, 0, 0], [-1] * 4], views[2].long_sources[0])
        self.assertEqual((1, 2, 4), views[2].global_sources.shape)
        self.assertEqual(
            [[b"a", b"bb", b"ccc"], [], [b"dddd"]],
            [view.text["text_words"] for view in views],
        )
        self.assertEqual(
            [[0, 2], [0], [0]], [[*x.windows["starts"]] for x in views]
        )
        # The only unit is in both windows, but it is counted once.
        counts = views[0].counts["words"]
        self.assertEqual((3, 3, 1), (*counts[:2], counts.units))
        self.assertAllClose(
            [[[0.2, 1], [0.4, 1]], [[0.6, 1], [0, 0]]],
            views[0].features["looks"],
        )

    def test_ragged_numbers(self):
        sources = tf.zeros([2, 0, 4])
        batch = Encoded(
            layout.Layout({}, {}, sources, sources, {}, tf.range(2), {}),
            {},
            {"spans": tf.ragged.constant([[4, 5], []], dtype=tf.int32)},
        )
        batch = on_host(batch)
        spans = [RecordView(batch, i).text["spans"] for i in (0, 1)]
        self.assertEqual([[4, 5], []], [x.tolist() for x in spans])


class CountCutTest(tf.test.TestCase):
    def test_counts(self):
        class View:
            counts = {
                "question": layout.Counts(5, 4, 1, 1, 1, 1),
                "text": layout.Counts(20, 12, 6, 4, 3, 2),
            }

        self.assertEqual(
            {
                "tokens": 25,
                "tokens_cut": 9,
                "paragraphs": 3,
                "paragraphs_cut": 1,
                "sentences": 6,
                "sentences_cut": 2,
                "records_cut": 1,
            },
            count_cut(View, {"text": ("paragraphs", "sentences")}),
        )


class EtcPreprocessorTest(tf.test.TestCase):
    def test_invalid_vocabulary_or_sizes(self):
        blank = os.path.join(self.get_temp_dir(), "blank.txt")
        with open(blank, "w") as stream:
            stream.write("a\nb\n")
        for sizes, file in (
            (toy.Sizes(), blank),
            (toy.Sizes(), "/no/such/file"),
            (toy.Sizes(), self.get_temp_dir()),
            (
                toy.Sizes(long_length=-1),
                write_test_vocab(self.get_temp_dir(), "a"),
            ),
        ):
            with self.assertRaisesRegex(
                UserError, f"`vocab_file={file}` cannot be used: "
            ):
                toy.TASK.make_preprocessor(sizes, file)

    def test_raw_inputs(self):
        records = [toy.ToyRecord("1", "a bb"), toy.ToyRecord("2", "\u00e9")]
        raw = toy.ToyPreprocessor.raw_batch(records)
        self.assertEqual(["text"], list(raw))
        self.assertEqual([b"a bb", b"\xc3\xa9"], raw["text"].tolist())


class TrimTest(tf.test.TestCase, parameterized.TestCase):
    """Tests that `_trim` shortens the inputs of short texts."""

    @parameterized.parameters(
        ([300, 5], 320, [3, 2], 64),
        ([64], 64, [65], 128),
        ([990], 1000, [400], 448),
        ([0], 64, [0], 64),
        ([], 64, [], 64),
    )
    def test_trimmed_lengths(self, used, long, used_global, short):
        rng = np.random.default_rng(0)
        lengths = {"long": 1000, "global": 600}
        features = {
            name: rng.integers(
                1,
                9,
                [
                    len(used),
                    1000 if name in etc_features.LONG_FEATURES else 600,
                ],
            )
            for name in etc_features.FEATURES
        }
        for axis, ends in (("long", used), ("global", used_global)):
            breakpoints = np.zeros([len(used), lengths[axis]], np.int32)
            for row, end in zip(breakpoints, ends, strict=True):
                row[:end] = np.arange(end) == end - 1
            features[f"{axis}_paragraph_breakpoints"] = breakpoints
        schema = example_schema.etc_schema(
            a=example_schema.Field("long", example_schema.CONTEXT, pad=-1),
            b=example_schema.Field("global", example_schema.CONTEXT, pad=-1),
            c=example_schema.Field("one", example_schema.CONTEXT),
        )
        context = {
            "a": features["long_token_ids"],
            "b": features["global_token_ids"],
            "c": np.ones([len(used)]),
        }
        preprocessor = make_preprocessor(self.get_temp_dir())
        with mock.patch.object(toy.ToyPreprocessor, "SCHEMA", schema):
            made = preprocessor._trim(
                *(
                    {name: tf.constant(x) for name, x in values.items()}
                    for values in (features, context)
                )
            )
        sizes = {1000: long, 600: short}
        for values, shorter in zip((features, context), made, strict=True):
            self.assertEqual(set(values), set(shorter))
            for name, value in values.items():
                if value.ndim > 1:
                    value = value[:, : sizes[value.shape[1]]]
                self.assertAllEqual(value, shorter[name], name)


class TokensCutTest(tf.test.TestCase):
    def test_by_hand(self):
        """`tokens_cut` counts truncated tokens of all sections."""
        preprocessor = make_preprocessor(self.get_temp_dir())

        def counts(tokens, kept):
            nothing = tf.zeros([3], tf.int32)
            pair = tf.constant(tokens), tf.constant(kept)
            return layout.Counts(*pair, *[nothing] * 4)

        made = preprocessor(tf.constant(["a", "bb", "ccc"]))
        pieces = {
            "a": counts([5, 6, 7], [5, 4, 6]),
            "b": counts([9, 1, 1], [1, 1, 1]),
        }
        made = made._replace(layout=made.layout._replace(counts=pieces))
        with mock.patch.object(
            toy.ToyPreprocessor, "build", lambda *_, **__: made
        ):
            batch = preprocessor.batch_of_raw(text=tf.constant(["a"] * 3))
        self.assertAllEqual([8, 2, 1], batch.outputs["tokens_cut"])


if __name__ == "__main__":
    tf.test.main()
