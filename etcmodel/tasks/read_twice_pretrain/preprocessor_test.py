import os

import numpy as np
import tensorflow as tf

from etcmodel.datasets.documents import Document
from etcmodel.datasets.documents import Mention
from etcmodel.errors import UserError
from etcmodel.pipeline import example_maker
from etcmodel.tasks.read_twice_pretrain.task import TASK
from testing.tasks import encode_records
from testing.tasks import without_tracing

_WORDS = (
    "[PAD] [unused0] [unused1] [unused2] [unused3] [unused4] [UNK] [CLS] [SEP] "
    "[MASK] jan in brno ##o lives . he"
).split()


def ids(text):
    return [_WORDS.index(word) for word in text.split()]


def read(serialized):
    features = tf.train.Example.FromString(serialized).features.feature
    return {
        name: np.array(value.int64_list.value)
        for name, value in features.items()
        if name != "for_training"
    }


class FeaturesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(without_tracing())
        self.vocab_file = self._write("vocab.txt", "\n".join(_WORDS) + "\n")

    def _write(self, name, text):
        path = os.path.join(self.get_temp_dir(), name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def _writer(self, **sizes):
        return example_maker.of_task(
            TASK, TASK.make_preprocessing_config(sizes), self.vocab_file
        )

    def test_by_hand(self):
        writer = self._writer(
            block_length=5, max_num_annotations=2, num_blocks_per_example=2
        )
        given = Document(
            "a",
            "Ján lives in Brno. He lives.",
            (
                Mention(0, 3, "Q1"),
                Mention(13, 17, "Q2"),
                Mention(13, 18),
                Mention(19, 21, "Q1"),
            ),
        )
        found = Document("b", "jan Jan. Brno jan")
        (first, second) = encode_records(writer, [given, found], "train")
        # The document has 8 tokens, four in each segment.
        (stored,) = map(read, first.examples)
        self.assertAllEqual(
            stored["token_ids"],
            ids("[CLS] jan lives in brno [CLS] . he lives ."),
        )
        self.assertAllEqual(stored["is_continuation"], np.zeros(10))
        self.assertAllEqual(stored["block_pos"], [1, 2])
        self.assertLen(set(stored["block_ids"]), 1)
        self.assertAllEqual(stored["annotation_begins"], [1, 4, 2, 0])
        # The third mention, "Brno.", is over the maximum of two.
        self.assertAllEqual(stored["annotation_ends"], [1, 4, 2, 0])
        jan, brno, he, none = stored["annotation_labels"]
        self.assertEqual((jan, 0), (he, none))
        self.assertLen({jan, brno, 0, 1}, 4)
        self.assertEqual(
            first.counts,
            {
                "tokens": 8,
                # Includes the CLS of each segment.
                "tokens_stored": 10,
                "tokens_unknown": 0,
                "segments": 2,
                "mentions": 3,
                "mentions_of_unknown_entities": 0,
                "mentions_cut": 1,
                "documents_divided": 0,
            },
        )
        (stored,) = map(read, second.examples)
        self.assertAllEqual(stored["annotation_begins"], [2, 4, 0, 0])
        self.assertAllEqual(stored["annotation_ends"], [2, 4, 0, 0])

    def test_long_documents_are_divided(self):
        writer = self._writer(
            block_length=3, max_num_annotations=1, num_blocks_per_example=2
        )
        (written,) = encode_records(writer, [Document("a", "jan " * 9)], "dev")
        parts = [read(x) for x in written.examples]
        self.assertEqual([2, 2, 1], [len(x["block_ids"]) for x in parts])
        self.assertAllEqual([1, 2], parts[1]["block_pos"])
        self.assertLen({x["block_ids"][0] for x in parts}, 3)
        self.assertEqual(1, written.counts["documents_divided"])

    def test_vocabulary_without_mask(self):
        words = [x for x in _WORDS if x != "[MASK]"]
        self.vocab_file = self._write("no_mask.txt", "\n".join(words) + "\n")
        with self.assertRaisesRegex(UserError, "no_mask.txt.*no mask token"):
            self._writer()


if __name__ == "__main__":
    tf.test.main()
