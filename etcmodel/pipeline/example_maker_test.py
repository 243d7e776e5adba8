import gc
import weakref
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import RecordError
from etcmodel.pipeline import example_maker
from etcmodel.readers.records import Source
from testing import toy_task as toy
from testing.tasks import encode_records
from testing.tasks import write_test_vocab


class ExampleMakerTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        vocab_file = write_test_vocab(cls().get_temp_dir(), toy.VOCAB)
        cls.writer = example_maker.of_task(toy.TASK, toy.Sizes(), vocab_file)

    def _stored(self, encoded):
        """Returns the features of each stored example."""
        return [
            tf.train.Example.FromString(x).features.feature
            for x in encoded.examples
        ]

    def test_stored_features(self):
        records = [
            toy.ToyRecord("x", "a bb a a bb ccc", "ccc"),
            toy.ToyRecord("y", "a", "a"),
        ]
        several, one = encode_records(self.writer, records, "dev")
        self.assertEqual(6, several.counts["tokens"])
        self.assertEqual(1, several.counts["units"])
        self.assertEqual(0, several.counts["records_cut"])
        first, second = self._stored(several)
        for window, stored in enumerate((first, second)):
            self.assertEqual([window], stored["window"].int64_list.value)
            self.assertEqual([b"x"], stored["example_id"].bytes_list.value)
            self.assertLen(stored["text_words"].bytes_list.value, 6)
            self.assertEqual([b'"ccc"'], stored["gold"].bytes_list.value)
        self.assertEqual([4, 5], second["words"].int64_list.value)
        self.assertEqual([-1], first["longest"].int64_list.value)
        self.assertEqual([1], second["longest"].int64_list.value)
        (alone,) = self._stored(one)
        self.assertNotIn("window", alone)

    def test_splits(self):
        record = toy.ToyRecord("x", "a bb a a bb ccc", "ccc")
        (train,) = encode_records(self.writer, [record], "train")
        (stored,) = self._stored(train)
        self.assertEqual([1], stored["window"].int64_list.value)
        # Training needs neither texts nor features for decoding.
        self.assertEqual([1], stored["for_training"].int64_list.value)
        self.assertNoCommonElements(
            {*stored}, {"gold", "text", "text_words", "words"}
        )
        (predict,) = encode_records(self.writer, [record], "predict")
        for stored in self._stored(predict):
            self.assertNotIn("gold", stored)
            self.assertNotIn("longest", stored)
        unknown = toy.ToyRecord("x", "a", None)
        (stored,) = self._stored(
            encode_records(self.writer, [unknown], "predict")[0]
        )
        self.assertNotIn("gold", stored)

    def test_unknown_tokens(self):
        """Counts unknown tokens in the stored windows of four words each."""
        records = [
            toy.ToyRecord("x", "zz bb a zz bb ccc", "ccc"),
            toy.ToyRecord("y", "a Z\u00fc", "a"),
            toy.ToyRecord("z", "a", "a"),
        ]
        made = encode_records(self.writer, records, "dev")
        names = ("tokens_stored", "tokens_unknown")
        self.assertEqual(
            [(6, 2), (2, 1), (1, 0)],
            [tuple(x.counts[name] for name in names) for x in made],
        )
        # The first window is not stored, because it has no answer.
        made = encode_records(self.writer, records[:1], "train")
        self.assertEqual([2, 0], [made[0].counts[name] for name in names])

    def test_lone_surrogate(self):
        record = toy.ToyRecord("\ud83d", "a \ud83d", "a")
        (stored,) = self._stored(
            encode_records(self.writer, [record], "dev")[0]
        )
        self.assertEqual([b"?"], stored["example_id"].bytes_list.value)
        self.assertEqual([b"a", b"?"], stored["text_words"].bytes_list.value)
        self.assertEqual(b'{"a": "?"}', example_maker.to_json({"a": "\ud83d"}))

    def test_builder_that_fails(self):
        records = [
            toy.ToyRecord(name, "a", source=Source("data.json", index))
            for name, index in (("x", 7), ("y", 8))
        ]

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def fail(text):
            tf.debugging.assert_less(tf.size(text), 0, "Too many.")

        with mock.patch.object(self.writer, "_preprocess", fail):
            with self.assertRaisesRegex(
                RecordError, r"data.json, record 7 \(id 'x'\): .*Too many"
            ) as caught:
                self.writer.preprocess(records)
        self.assertEqual("cannot be encoded", caught.exception.reason)
        # The message must not contain TensorFlow's stack trace.
        self.assertNotIn("File", str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_errors_do_not_keep_their_records(self):
        record = toy.ToyRecord("x", "a", source=Source("data.json", 0))

        def fail(self, records, split):
            raise records[0].error("bad", problem="it is bad")

        self.addCleanup(gc.enable)
        gc.disable()
        with mock.patch.object(example_maker.ExampleMaker, "_make_batch", fail):
            (made,) = self.writer.make_examples([record], "dev")
        freed = weakref.ref(made)
        del made
        self.assertIsNone(freed())

    def test_does_not_pack(self):
        packer = self.writer.make_packer()
        self.assertEqual([b"x"], packer.add(b"x"))
        self.assertEqual([], packer.flush())


if __name__ == "__main__":
    tf.test.main()
