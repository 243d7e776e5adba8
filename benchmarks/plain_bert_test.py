"""Tests of `plain_bert`: its encoder, vectors and reader."""

import json
import os

import tensorflow as tf

from benchmarks import plain_bert
from etcmodel.checkpoints import bert_files
from etcmodel.checkpoints import lifting
from etcmodel.models import EtcModel
from testing import small_berts

_WORDS = "jan eve lives sings in brno krakow where does who ? .".split()


class PlainBertTest(tf.test.TestCase):
    def _bert(self, num_words=6):
        """A BERT with random weights, and a vocabulary of so many words."""
        folder = self.get_temp_dir()
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokens += _WORDS[:num_words]
        small_berts.write_vocab(os.path.join(folder, "vocab.txt"), tokens)
        shapes = {
            **small_berts.SHAPES,
            "embeddings.word_embeddings": (len(tokens), 8),
            "embeddings.position_embeddings": (40, 8),
        }
        return bert_files.Bert(
            path=folder,
            architecture="bert",
            sizes={
                **small_berts.SIZES,
                "vocab_size": len(tokens),
                "hidden_act": "exact_gelu",
            },
            layer_norm_epsilon=1e-12,
            weights=small_berts.make_weights(shapes=shapes),
            names={name: name for name in shapes},
            left_out={},
            vocab_file=os.path.join(folder, "vocab.txt"),
        )

    def test_equals_the_lifted_model(self):
        bert = self._bert()
        model = EtcModel(
            lifting.lifted_config(
                bert, preset="tiny", absolute_positions="paragraph"
            )
        )
        lifting.lift(model, bert, global_tokens="keep")
        ids = [2, 5, 9, 9, 3]
        encoder = plain_bert.make_encoder(bert)
        found = encoder(
            {
                "input_word_ids": tf.constant([ids]),
                "input_mask": tf.ones([1, 5], tf.int32),
                "input_type_ids": tf.zeros([1, 5], tf.int32),
            }
        )["sequence_output"][0]
        expected = small_berts.encode_long(model, ids)
        self.assertAllClose(expected, found, 1e-4, 1e-4)

    def test_mean_vectors(self):
        """Of chunks of two words: "jan eve" and "lives"."""
        bert = self._bert()
        (both,) = plain_bert.mean_vectors(bert, ["Jan Eve lives"], size=4)
        first, second = plain_bert.mean_vectors(bert, ["Jan Eve", "lives"])
        self.assertAllClose((first + second) / 2, both, 1e-4, 1e-4)

    def test_reads_squad(self):
        """It learns by heart who is where."""
        paragraphs = []
        for number, (jan, eve) in enumerate(
            [("Brno", "Krakow"), ("Krakow", "Brno")]
        ):
            context = f"Jan lives in {jan} . Eve sings in {eve} ."
            paragraphs.append(
                {
                    "context": context,
                    "qas": [
                        {
                            "id": f"{number}{name}",
                            "question": f"Where does {name} ?",
                            "answers": [
                                {
                                    "text": place,
                                    "answer_start": context.index(place),
                                }
                            ],
                        }
                        for name, place in (("Jan", jan), ("Eve", eve))
                    ],
                }
            )
        file = os.path.join(self.get_temp_dir(), "squad.json")
        with open(file, "w", encoding="utf-8") as stream:
            data = [{"title": "T", "paragraphs": paragraphs}]
            json.dump({"version": "1.1", "data": data}, stream)
        answers = plain_bert.read_squad(
            self._bert(len(_WORDS)),
            file,
            file,
            epochs=150.0,
            learning_rate=1e-2,
            batch_size=4,
            length=40,
        )
        expected = {"0Jan": "Brno", "0Eve": "Krakow"}
        expected |= {"1Jan": "Krakow", "1Eve": "Brno"}
        self.assertEqual(expected, answers)


if __name__ == "__main__":
    tf.test.main()
