import shutil
import tempfile

import pytest
import tensorflow as tf

from etcmodel.feature_utils import etc_features
from etcmodel.models import EtcConfig
from etcmodel.tasks import model_testing
from etcmodel.tasks.task_testing import write_test_vocab
from etcmodel.tasks.wikihop import export
from etcmodel.tasks.wikihop.decoding import decode_answers
from etcmodel.tasks.wikihop.model import build_wikihop_model
from etcmodel.tasks.wikihop.pipeline import WikiHopPipeline
from etcmodel.tasks.wikihop.pipeline import make_builder

_CANDIDATES = [["Paris", "rome", "oslo"], ["oslo", "", ""], ["", "", ""]]


class ExportTest(model_testing.SavedModelTestCase):
    answers = {"answer", "answer_index", "candidate_probabilities"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        vocab_file = write_test_vocab(
            directory, "paris rome oslo city jan is in he ."
        )
        config = WikiHopPipeline().feature_config(
            {"long_length": 32, "global_length": 16}
        )
        builder = make_builder(config, vocab_file)
        model = build_wikihop_model(
            EtcConfig.from_preset(
                "tiny",
                vocab_size=builder.tokenizer.vocab_size,
                num_hidden_layers=1,
            )
        )
        model_testing.set_random_weights(model, 0.5)
        cls.export("wikihop", *export.build_serving_module(model, builder))
        cls.inputs = {
            "query": tf.constant(["city jan", "city", "jan"]),
            "candidates": tf.constant(_CANDIDATES),
            "supports": tf.constant(
                [["Jan is in Rome. He is.", "Oslo."], ["", ""], ["jan", ""]]
            ),
        }
        cls.features = builder(*cls.inputs.values())
        cls.logits = model(cls.features, training=False)
        cls.expected = decode_answers(
            cls.logits["logits"], cls.inputs["candidates"]
        )

    @pytest.mark.both_kerases
    def test_raw_text(self):
        outputs = self.serve(**self.inputs)
        self.check(outputs)
        answers = outputs["answer"].numpy().tolist()
        self.assertIn(answers[0], [b"Paris", b"rome", b"oslo"])
        self.assertEqual([b"oslo", b""], answers[1:])
        self.assertAllEqual([0, -1], outputs["answer_index"][1:])
        self.assertAllClose(
            [1.0, 1.0, 0.0],
            tf.reduce_sum(outputs["candidate_probabilities"], axis=1),
        )

    def test_batches_do_not_matter(self):
        """Nor does how wide the padding is."""
        for i in range(3):
            row = {name: x[i : i + 1] for name, x in self.inputs.items()}
            row["supports"] = tf.pad(row["supports"], [[0, 0], [0, 3]])
            self.check(
                self.serve(**row),
                {name: x[i : i + 1] for name, x in self.expected.items()},
            )

    def test_serialized_examples(self):
        """Like what `preprocess` writes, and without the candidates' text."""
        with_text = etc_features.serialize_batch(
            self.features,
            [
                {"candidates": [text for text in row if text] or [b""]}
                for row in _CANDIDATES
            ],
        )
        outputs = self.serve(
            "serialized_examples", examples=tf.constant(with_text)
        )
        self.check(outputs)
        self.check_logits(outputs)
        without = etc_features.serialize_batch(self.features)
        self.check_logits(
            self.serve("serialized_examples", examples=tf.constant(without))
        )


if __name__ == "__main__":
    tf.test.main()
