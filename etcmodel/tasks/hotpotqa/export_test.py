import os
import shutil
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import etc_features
from etcmodel.models import EtcConfig
from etcmodel.tasks import export_lib
from etcmodel.tasks import serving_warmup_test
from etcmodel.tasks.errors import BadRecords
from etcmodel.tasks.hotpotqa import examples
from etcmodel.tasks.hotpotqa import export
from etcmodel.tasks.hotpotqa.decoding import decode_answers
from etcmodel.tasks.hotpotqa.model import build_hotpotqa_model
from etcmodel.tasks.hotpotqa.pipeline import HotpotQAPipeline
from etcmodel.tasks.hotpotqa.pipeline import make_builder
from etcmodel.tasks.hotpotqa.records import HotpotQARecord
from etcmodel.tasks.hotpotqa.records import Paragraph
from etcmodel.tasks.task_testing import run_without_package
from etcmodel.tasks.task_testing import write_test_vocab
from etcmodel.testing import real_data_path

# The second has less of everything, the third has no text at all.
_REQUEST = {
    "question": ["where is jan ?", "city", ""],
    "titles": [["Jan", "Rome"], ["Oslo", ""], ["", ""]],
    "sentences": [
        [["Jan is in ROME.", " He is.", "\u00e9"], ["Rome is a city.", "", ""]],
        [["Oslo is a big city.", "", ""], ["", "", ""]],
        [["", "", ""], ["", "", ""]],
    ],
}
_ANSWERS = {
    "answer",
    "answer_type",
    "answer_probability",
    "supporting_fact_probabilities",
}
_LOGITS = {
    "supporting_fact_logits",
    "answer_type_logits",
    "answer_begin_logits",
    "answer_end_logits",
}


def _model(vocab_size, **options):
    """A small model that does not answer "yes" or "no"."""
    tf.keras.utils.set_random_seed(3)
    model = build_hotpotqa_model(
        EtcConfig.from_preset(
            "tiny",
            vocab_size=vocab_size,
            num_hidden_layers=1,
            initializer_range=0.5,
        ),
        **options,
    )
    head = model.get_layer("output_layer")
    head.answer_type.bias.assign([50.0, 0.0, 0.0])
    return model


class ExportTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        cls.path = os.path.join(directory, "saved_model")
        cls.vocab_file = write_test_vocab(
            directory, "where is jan ? city rome oslo in he . a big e"
        )
        config = HotpotQAPipeline().feature_config(
            {"long_length": 40, "global_length": 20}
        )
        cls.builder = make_builder(config, cls.vocab_file)
        cls.model = _model(cls.builder.tokenizer.vocab_size)
        module, warmup = export.build_serving_module(cls.model, cls.builder)
        export_lib.export_saved_model(
            module,
            cls.path,
            model_name="hotpotqa",
            metadata={"task": "hotpotqa"},
            warmup_inputs=warmup,
        )
        cls.signatures = tf.saved_model.load(cls.path).signatures
        cls.inputs = {
            name: tf.constant(value) for name, value in _REQUEST.items()
        }
        made, cls.context = cls.builder.build(*cls.inputs.values())
        cls.features = made.features
        cls.logits = cls.model(cls.features, training=False)
        cls.expected = cls._decode(cls.logits)

    @classmethod
    def _decode(cls, logits, *options):
        return decode_answers(
            logits,
            cls.features["long_token_type_ids"],
            cls.features["long_sentence_ids"],
            cls.context,
            *options,
            shape=[2, 3],
        )

    def _check(self, outputs, expected=None):
        expected = expected or self.expected
        self.assertEqual(set(outputs) - _LOGITS, _ANSWERS)
        for name in ("answer", "answer_type"):
            self.assertAllEqual(expected[name], outputs[name])
        for name in ("answer_probability", "supporting_fact_probabilities"):
            self.assertAllClose(expected[name], outputs[name], atol=1e-5)

    def test_raw_text(self):
        outputs = self.signatures["serving_default"](**self.inputs)
        self._check(outputs)
        self.assertEqual(outputs["answer"].dtype, tf.string)
        self.assertEqual(outputs["answer_type"].dtype, tf.int32)
        texts = [
            " ".join([*titles, *(x for row in sentences for x in row)])
            for titles, sentences in zip(
                _REQUEST["titles"], _REQUEST["sentences"], strict=True
            )
        ]
        for text, answer in zip(texts, outputs["answer"].numpy(), strict=True):
            # As it stands in the text, not as in the vocabulary.
            self.assertIn(answer.decode(), text)
            self.assertEqual(bool(answer), bool(text.strip()))
        self.assertAllEqual(outputs["answer_type"], [0, 0, 0])
        # Any sentence with text can be a fact, and nothing else.
        probabilities = outputs["supporting_fact_probabilities"]
        self.assertEqual(probabilities.shape, [3, 2, 3])
        self.assertAllEqual(
            probabilities > 0,
            [
                [[bool(text) for text in p] for p in r]
                for r in _REQUEST["sentences"]
            ],
        )
        self.assertAllLess(probabilities, 1.0)

    def test_batches_and_padding_do_not_matter(self):
        for i in range(3):
            row = {name: x[i : i + 1] for name, x in self.inputs.items()}
            row["titles"] = tf.pad(row["titles"], [[0, 0], [0, 2]])
            row["sentences"] = tf.pad(
                row["sentences"], [[0, 0], [0, 2], [0, 4]]
            )
            alone = self.signatures["serving_default"](**row)
            got = alone["supporting_fact_probabilities"]
            self.assertEqual(got.shape, [1, 4, 7])
            self.assertAllEqual(got[:, 2:], tf.zeros([1, 2, 7]))
            self.assertAllEqual(got[:, :, 3:], tf.zeros([1, 4, 4]))
            self._check(
                {**alone, "supporting_fact_probabilities": got[:, :2, :3]},
                {name: x[i : i + 1] for name, x in self.expected.items()},
            )

    def _call_features(self, features):
        return self.signatures["features"](
            **{name: tf.cast(x, tf.int64) for name, x in features.items()}
        )

    def test_features(self):
        outputs = self._call_features(self.features)
        self.assertEqual(set(outputs), _LOGITS)
        for name in _LOGITS:
            self.assertAllClose(self.logits[name], outputs[name], atol=1e-4)
        # Answers follow from them and from the text.
        self._check(self._decode(outputs))

    def test_features_of_another_length(self):
        used = {
            "long": int(
                np.count_nonzero(self.features["long_token_ids"], axis=1).max()
            ),
            "global": int(
                np.count_nonzero(
                    self.features["global_token_ids"], axis=1
                ).max()
            ),
        }
        self.assertLess(used["long"], 40)
        self.assertLess(used["global"], 20)
        outputs = self._call_features(
            {
                name: x[:, : used["global" if "global" in name else "long"]]
                for name, x in self.features.items()
            }
        )
        self.assertAllClose(
            self.logits["answer_type_logits"],
            outputs["answer_type_logits"],
            atol=1e-4,
        )
        for name in ("answer_begin_logits", "answer_end_logits"):
            self.assertAllClose(
                self.logits[name][:, : used["long"]], outputs[name], atol=1e-4
            )

    def test_serialized_examples(self):
        serialized = etc_features.serialize_batch(
            self.features,
            [
                examples.context_values(examples.on_host(self.context), i)
                for i in range(3)
            ],
        )
        signature = self.signatures["serialized_examples"]
        outputs = signature(examples=tf.constant(serialized))
        self.assertEqual(set(outputs), _ANSWERS | _LOGITS)
        for name in _LOGITS:
            self.assertAllClose(self.logits[name], outputs[name], atol=1e-4)
        # As many sentences as there are, whatever padding a request has.
        self._check(outputs)
        alone = signature(examples=tf.constant(serialized[1:2]))
        got = alone["supporting_fact_probabilities"]
        self.assertEqual(got.shape, [1, 1, 1])
        self.assertAllClose(
            got, self.expected["supporting_fact_probabilities"][1:2, :1, :1]
        )
        self.assertAllEqual(alone["answer"], self.expected["answer"][1:2])

    def test_what_preprocess_writes(self):
        """Examples with labels give what raw text gives."""
        pipeline = HotpotQAPipeline()
        record = HotpotQARecord(
            id="a",
            question="where is jan ?",
            context=(
                Paragraph("Jan", ("Jan is in ROME.", " He is.", "\u00e9")),
                Paragraph("Rome", ("Rome is a city.",)),
            ),
            answer="ROME",
            supporting_facts=(("Jan", 0),),
        )
        encoder = pipeline.record_encoder(
            "x", self.builder.config, self.vocab_file
        )
        tf.config.run_functions_eagerly(True)
        ((serialized, _),) = encoder.encode([record], "train")
        tf.config.run_functions_eagerly(False)
        outputs = self.signatures["serialized_examples"](
            examples=tf.constant(serialized)
        )
        expected = {name: x[:1] for name, x in self.expected.items()}
        self._check(outputs, expected)
        raw = pipeline.serving_inputs([record])
        self._check(
            self.signatures["serving_default"](
                **{name: tf.constant(x) for name, x in raw.items()}
            ),
            expected,
        )

    def test_works_without_this_package(self):
        result = run_without_package(self.path, _REQUEST)
        for loader in ("python", "session"):
            outputs = result[loader]
            outputs["answer"] = [text.encode() for text in outputs["answer"]]
            self._check(outputs)
        self.assertEmpty(result["unknown"])
        # Few and common ones: a server links those of its own version.
        self.assertEqual(
            [
                "FastBertNormalize",
                "FastWordpieceTokenizeWithOffsets",
            ],
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
        answers = []
        for name, inputs in requests:
            outputs = self.signatures[name](
                **{key: tf.constant(value) for key, value in inputs.items()}
            )
            for value in outputs.values():
                if value.dtype != tf.string:
                    self.assertTrue(np.isfinite(value.numpy()).all())
            if "answer" in outputs:
                answers.append(outputs)
        # All are the same request.
        self._check(*answers)

    def _task(self, model, *options):
        """How answers are found; not traced, which would take a while."""
        with mock.patch.object(
            export_lib, "make_text_module", lambda model, builder, task: task
        ):
            return export.build_serving_module(model, self.builder, *options)

    def test_decoding_options(self):
        """What the experiment says of answers is what the SavedModel does."""
        probabilities = set()
        for options in ((0.0, 30), (1.0, 30), (0.5, 1)):
            task = self._task(self.model, *options)
            features, context = task.encode(**self.inputs)
            outputs = task.decode(features, self.logits, context)
            self._check(outputs, self._decode(self.logits, *options))
            probabilities.add(outputs["answer_probability"].numpy().tobytes())
        self.assertGreater(len(probabilities), 1)
        # The longest answer: one token.
        self.assertAllLess(
            [len(x.split()) for x in outputs["answer"].numpy()], 2
        )
        outputs = task.decode(
            features,
            {
                **self.logits,
                "answer_type_logits": tf.constant([[0, 9, 0], [0, 0, 9.0]] * 2)[
                    :3
                ],
            },
            context,
        )
        self.assertAllEqual(outputs["answer"], [b"yes", b"no", b"yes"])

    def test_bio_encoding(self):
        model = _model(self.builder.tokenizer.vocab_size, answer_encoding="bio")
        logits = model(self.features, training=False)
        self.assertIn("answer_bio_logits", logits)
        task = self._task(model)
        features, context = task.encode(**self.inputs)
        self._check(
            task.decode(features, logits, context), self._decode(logits)
        )


def _rows(tensors):
    """Every tensor's rows, as NumPy arrays."""
    return {
        name: np.split(x.values.numpy(), x.row_splits.numpy()[1:-1])
        if isinstance(x, tf.RaggedTensor)
        else x.numpy()
        for name, x in tensors.items()
    }


class RealRecordsTest(tf.test.TestCase):
    """What is stored for training is what raw text becomes when served."""

    def test_stored_and_served_features_are_the_same(self):
        """Stored in batches of 8, served one by one.

        These are all real records of HotpotQA and every fifth of
        2WikiMultihopQA.
        """
        pipeline = HotpotQAPipeline()
        records = []
        for name, step in (
            ("dev_95", 1),
            ("train_200", 1),
            ("2wiki_train_500", 5),
        ):
            path = real_data_path(f"hotpotqa/{name}.json")
            read = pipeline.read_records(path, "dev", BadRecords())
            records += list(read)[::step]
        vocab_file = real_data_path("vocab/bert_uncased_vocab.txt")
        config = pipeline.feature_config(
            {"long_length": 768, "global_length": 64}
        )
        encoder = pipeline.record_encoder("x", config, vocab_file)
        builder = make_builder(config, vocab_file)

        @tf.function(
            input_signature=[
                tf.TensorSpec([None] * rank, tf.string) for rank in (1, 2, 3)
            ]
        )
        def serve(*inputs):
            made, context = builder.build(*inputs)
            return {**made.features, **context._asdict()}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def parse(serialized):
            stored = etc_features.parse(
                serialized, 768, 64, extra=dict(examples.CONTEXT_SPEC)
            )
            features = {name: stored[name] for name in etc_features.FEATURES}
            context = examples.parse_context(stored, 768, 64)
            return {**features, **context._asdict()}

        num_cut = 0
        for first in range(0, len(records), 8):
            batch = records[first : first + 8]
            encoded = encoder.encode(batch, "dev")
            num_cut += sum(item.counts["records_cut"] for item in encoded)
            stored = _rows(
                parse(tf.constant([item.examples[0] for item in encoded]))
            )
            self.assertLen(stored, 9 + 5)
            for i, record in enumerate(batch):
                # Without the padding that others need.
                raw = pipeline.serving_inputs([record]).values()
                served = _rows(serve(*(tf.constant(x) for x in raw)))
                self.assertEqual(set(served), set(stored))
                for name, (value,) in served.items():
                    self.assertTrue(
                        np.array_equal(value, stored[name][i]),
                        f"{record.id} {name}",
                    )
        # Some are cut at these lengths, some are not.
        self.assertBetween(num_cut, 1, len(records) - 1)


if __name__ == "__main__":
    tf.test.main()
