import os
import shutil
import tempfile

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import etc_features
from etcmodel.models import EtcConfig
from etcmodel.tasks import export_lib
from etcmodel.tasks import serving_warmup_test
from etcmodel.tasks.task_testing import run_without_package
from etcmodel.tasks.task_testing import write_test_vocab
from etcmodel.tasks.wikihop import export
from etcmodel.tasks.wikihop.decoding import decode_answers
from etcmodel.tasks.wikihop.model import build_wikihop_model
from etcmodel.tasks.wikihop.pipeline import WikiHopPipeline
from etcmodel.tasks.wikihop.pipeline import make_builder

_REQUEST = {
    "query": ["city jan", "city", "jan"],
    "candidates": [["Paris", "rome", "oslo"], ["oslo", "", ""], ["", "", ""]],
    "supports": [["Jan is in Rome. He is.", "Oslo."], ["", ""], ["jan", ""]],
}


class ExportTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        cls.path = os.path.join(directory, "saved_model")
        vocab_file = write_test_vocab(
            directory, "paris rome oslo city jan is in he ."
        )
        config = WikiHopPipeline().feature_config(
            {"long_length": 32, "global_length": 16}
        )
        cls.builder = make_builder(config, vocab_file)
        cls.model = build_wikihop_model(
            EtcConfig.from_preset(
                "tiny",
                vocab_size=cls.builder.tokenizer.vocab_size,
                num_hidden_layers=1,
                initializer_range=0.5,
            )
        )
        module, cls.warmup = export.build_serving_module(cls.model, cls.builder)
        export_lib.export_saved_model(
            module,
            cls.path,
            model_name="wikihop",
            metadata={"task": "wikihop"},
            warmup_inputs=cls.warmup,
        )
        cls.signatures = tf.saved_model.load(cls.path).signatures
        cls.inputs = {
            name: tf.constant(value) for name, value in _REQUEST.items()
        }
        cls.features = cls.builder(*cls.inputs.values())
        cls.logits = cls.model(cls.features, training=False)["logits"]
        cls.expected = decode_answers(cls.logits, cls.inputs["candidates"])

    def _check(self, outputs):
        self.assertEqual(
            {"answer", "answer_index", "candidate_probabilities"},
            set(outputs) - {"logits"},
        )
        self.assertAllEqual(self.expected["answer"], outputs["answer"])
        self.assertAllEqual(
            self.expected["answer_index"], outputs["answer_index"]
        )
        self.assertAllClose(
            self.expected["candidate_probabilities"],
            outputs["candidate_probabilities"],
            atol=1e-5,
        )

    def test_raw_text(self):
        outputs = self.signatures["serving_default"](**self.inputs)
        self._check(outputs)
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
        whole = self.signatures["serving_default"](**self.inputs)
        for i in range(3):
            row = {
                name: value[i : i + 1] for name, value in self.inputs.items()
            }
            row["supports"] = tf.pad(
                row["supports"], [[0, 0], [0, 3]], constant_values=""
            )
            alone = self.signatures["serving_default"](**row)
            self.assertAllEqual(whole["answer"][i : i + 1], alone["answer"])
            self.assertAllClose(
                whole["candidate_probabilities"][i : i + 1],
                alone["candidate_probabilities"],
                atol=1e-5,
            )

    def test_features(self):
        outputs = self.signatures["features"](
            **{
                name: tf.cast(value, tf.int64)
                for name, value in self.features.items()
            }
        )
        self.assertEqual({"logits"}, set(outputs))
        self.assertAllClose(self.logits, outputs["logits"], atol=1e-4)

    def test_serialized_examples(self):
        """Like what `preprocess` writes, and without the candidates' text."""
        examples = etc_features.serialize_batch(
            self.features,
            [
                {"candidates": [text for text in row if text] or [b""]}
                for row in _REQUEST["candidates"]
            ],
        )
        signature = self.signatures["serialized_examples"]
        outputs = signature(examples=tf.constant(examples))
        self._check(outputs)
        self.assertAllClose(self.logits, outputs["logits"], atol=1e-4)
        outputs = signature(
            examples=tf.constant(etc_features.serialize_batch(self.features))
        )
        self.assertAllClose(self.logits, outputs["logits"], atol=1e-4)

    def test_works_without_this_package(self):
        result = run_without_package(self.path, _REQUEST)
        for loader in ("python", "session"):
            outputs = result[loader]
            outputs["answer"] = [text.encode() for text in outputs["answer"]]
            self._check(outputs)
        self.assertEmpty(result["unknown"])
        # Few and common ones: a server links those of its own version.
        self.assertEqual(
            ["FastBertNormalize", "FastWordpieceTokenizeWithOffsets"],
            result["other"],
        )
        for op in result["ops"]:
            self.assertNotIn("PyFunc", op)

    def test_warmup_requests(self):
        requests = serving_warmup_test.read_warmup_requests(self.path)
        self.assertEqual(
            {"serving_default", "serialized_examples", "features"},
            {name for name, _ in requests},
        )
        for name, inputs in requests:
            outputs = self.signatures[name](
                **{key: tf.constant(value) for key, value in inputs.items()}
            )
            for value in outputs.values():
                if value.dtype != tf.string:
                    self.assertTrue(np.isfinite(value.numpy()).all())


if __name__ == "__main__":
    tf.test.main()
