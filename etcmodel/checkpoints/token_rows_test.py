import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.checkpoints import lifting
from etcmodel.checkpoints import token_rows
from etcmodel.models import EtcModel
from testing.small_berts import TOKENS
from testing.small_berts import make_bert
from testing.small_berts import write_vocab

# A vocabulary without tokens for sentences, questions or candidates.
_FEW = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[unused1]", "one"]


class TokenRowsTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.get_temp_dir()
        self.bert, self.weights = make_bert(self.folder, vocab=False)

    def write(self, name, tokens):
        path = os.path.join(self.folder, name)
        return write_vocab(path, tokens)

    def test_no_vocabulary(self):
        found = token_rows.find_token_rows(self.bert, None)
        self.assertAllEqual(np.arange(11), found.rows)
        self.assertEqual(11, token_rows.count_tokens(self.bert, None))

    def test_given_vocabulary_lacks_tokens(self):
        path = self.write("few.txt", _FEW)
        found = token_rows.find_token_rows(self.bert, path)
        self.assertAllEqual([*range(6), -1, -1, -1, -1], found.rows)
        self.assertEqual([6, 4, 7, 8, 9], found.global_ids)
        self.assertEmpty(found.unmatched)
        self.assertRegex(found.notes[0], "5 spare rows")
        self.assertEqual(10, token_rows.count_tokens(self.bert, path))
        # Tokens keep the rows that the source's own vocabulary gives them.
        bert = self.bert._replace(vocab_file=self.write("own.txt", TOKENS))
        found = token_rows.find_token_rows(bert, path)
        rows = [0, 6, 7, 8, 2, 10, 1, 3, 4, 5]
        self.assertAllEqual(rows, found.rows)

    @parameterized.parameters("cls", "mean", "keep")
    def test_new_global_tokens(self, kind):
        path = self.write("few.txt", _FEW)
        config = lifting.lifted_config(self.bert, vocab_file=path)
        model = EtcModel(config)
        report = lifting.lift(model, self.bert, path, kind)
        rows = self.weights["embeddings.word_embeddings"]
        # The mean leaves out spare rows, which belong to no token.
        new = rows[2] if kind == "cls" else rows[:6].mean(0)
        expected = [*rows[:6], new, new, new, new]
        if kind != "keep":
            expected[4] = new
        table = model.get_token_embedding_table()
        self.assertAllClose(expected, table)
        self.assertEmpty(report.unmatched)


if __name__ == "__main__":
    tf.test.main()
