import os

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import documents
from etcmodel.errors import UserError
from etcmodel.pipeline import example_maker
from etcmodel.tasks.pretrain import preprocessor
from etcmodel.tasks.pretrain.task import TASK
from etcmodel.tasks.pretrain.task import PretrainPreprocessingConfig
from testing import tasks
from testing.tasks import encode_records


class DivideTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # The first part reaches both limits.
        ([3, 3, 2, 6, 1], 8, 3, [(0, 3), (3, 5)]),
        # Only the limit of tokens is reached.
        ([3, 3, 2, 6, 1], 7, 9, [(0, 2), (2, 3), (3, 5)]),
        # Only the limit of sentences is reached.
        ([1, 1, 1, 1, 1], 9, 2, [(0, 2), (2, 4), (4, 5)]),
        # Every sentence fills a part.
        ([4, 4, 4], 4, 1, [(0, 1), (1, 2), (2, 3)]),
        # There are no sentences.
        ([], 4, 4, []),
    )
    def test_by_hand(self, lengths, long_length, global_length, expected):
        parts = preprocessor.divide(lengths, long_length, global_length)
        self.assertEqual(expected, list(parts))


class PretrainPreprocessorTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.vocab_file = tasks.write_test_vocab(
            self.get_temp_dir(), "the cat ##s saw a dog . one two"
        )
        with open(self.vocab_file, encoding="utf-8") as stream:
            self.vocab = stream.read().split("\n")

    def _write(self, *texts, **sizes):
        config = PretrainPreprocessingConfig(**{"min_sentences": 1, **sizes})
        writer = example_maker.of_task(TASK, config, self.vocab_file)
        return encode_records(
            writer,
            [documents.Document(id="0", text=x) for x in texts],
            "train",
        )

    def _read(self, serialized):
        stored = tf.train.Example.FromString(serialized).features.feature
        values = {k: list(x.int64_list.value) for k, x in stored.items()}
        words = [self.vocab[x] for x in values.pop("token_ids")]
        values.pop("for_training", None)
        return {"words": " ".join(words), **values}

    def test_by_hand(self):
        first, second = self._write(
            "The cats saw a dog. One\n\nTwo cows.", "A cat."
        )
        (example,) = map(self._read, first.examples)
        # An empty line also ends a sentence.
        self.assertEqual(
            {
                "words": "the cat ##s saw a dog . one two [UNK] .",
                "is_continuation": [0, 0, 1, *[0] * 8],
                "sentence_lengths": [7, 1, 3],
                "text_lengths": [3],
            },
            example,
        )
        self.assertEqual(
            {
                "sentences": 3,
                "sentences_divided": 0,
                "tokens": 11,
                "tokens_stored": 11,
                "tokens_unknown": 1,
                "texts": 1,
                "documents_divided": 0,
            },
            first.counts,
        )
        (example,) = map(self._read, second.examples)
        self.assertEqual("a cat .", example["words"])

    def test_long_documents_and_sentences_are_divided(self):
        (written,) = self._write(
            "Cats cats. One. Two. A dog.", long_length=4, global_length=2
        )
        self.assertEqual(
            [
                ("cat ##s cat ##s", [4]),
                (". one .", [1, 2]),
                ("two .", [2]),
                ("a dog .", [3]),
            ],
            [
                (x["words"], x["sentence_lengths"])
                for x in map(self._read, written.examples)
            ],
        )
        self.assertEqual(1, written.counts["sentences_divided"])
        self.assertEqual(1, written.counts["documents_divided"])
        # The second part of a split word is not marked as a continuation.
        (written,) = self._write("A one two cats.", long_length=4)
        _, rest = map(self._read, written.examples)
        self.assertEqual("##s .", rest["words"])
        self.assertEqual([0, 0], rest["is_continuation"])

    def test_short_documents_are_left_out(self):
        few, enough = self._write(
            "Dog. One.", "Dog. One. Two.", min_sentences=3
        )
        self.assertEqual([], few.examples)
        self.assertEqual(
            {
                "documents_of_too_few_sentences": 1,
                "tokens_of_too_few_sentences": 4,
                "tokens_stored": 0,
                "tokens_unknown": 0,
            },
            few.counts,
        )
        self.assertLen(enough.examples, 1)

    def test_packing(self):
        """Packs texts up to either limit, of tokens or of sentences."""
        config = PretrainPreprocessingConfig(
            long_length=8, global_length=3, min_sentences=1
        )
        writer = example_maker.of_task(TASK, config, self.vocab_file)
        packer = writer.make_packer()
        packed = []
        # The first two texts have 8 tokens, the others 3 sentences.
        for text in ("A the dog.", "Dog. One.", "A cat.", "Two. One."):
            (made,) = writer.make_examples(
                [documents.Document(id="0", text=text)], "train"
            )
            for values in made.rows:
                packed += packer.add(values)
        packed = [
            self._read(writer.schema.serialize(x))
            for x in packed + packer.flush()
        ]
        self.assertEqual(
            ["a the dog . dog . one .", "a cat . two . one ."],
            [x["words"] for x in packed],
        )
        self.assertEqual([[1, 2], [1, 2]], [x["text_lengths"] for x in packed])
        self.assertEqual(
            {"packing_efficiency": 15 / 16, "texts_per_example": 2.0},
            writer.preprocessor.summarize({"tokens": 15, "texts": 4}, 2),
        )

    def test_vocabulary_without_mask(self):
        with open(self.vocab_file, encoding="utf-8") as stream:
            tokens = stream.read().replace("[MASK]", "[mask]")
        path = os.path.join(self.get_temp_dir(), "other.txt")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(tokens)
        with self.assertRaisesRegex(UserError, "no mask token"):
            example_maker.of_task(TASK, PretrainPreprocessingConfig(), path)


if __name__ == "__main__":
    tf.test.main()
