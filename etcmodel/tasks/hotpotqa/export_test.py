import shutil
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf

from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.hotpotqa.records import Paragraph
from etcmodel.models import EtcConfig
from etcmodel.tasks import export_lib
from etcmodel.tasks import model_testing
from etcmodel.tasks.hotpotqa import export
from etcmodel.tasks.hotpotqa.decoding import decode_answers
from etcmodel.tasks.hotpotqa.model import build_hotpotqa_model
from etcmodel.tasks.hotpotqa.pipeline import HotpotQAPipeline
from etcmodel.tasks.hotpotqa.pipeline import make_builder
from etcmodel.tasks.task_testing import without_tracing
from etcmodel.tasks.task_testing import write_test_vocab

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


def _model(vocab_size, **options):
    """A small model that does not answer "yes" or "no"."""
    model = build_hotpotqa_model(
        EtcConfig.from_preset(
            "tiny", vocab_size=vocab_size, num_hidden_layers=1
        ),
        **options,
    )
    model_testing.set_random_weights(model, 0.5, seed=8)
    head = model.get_layer("output_layer")
    head.answer_type.bias.assign([50.0, 0.0, 0.0])
    return model


class ExportTest(model_testing.SavedModelTestCase):
    answers = {
        "answer",
        "answer_type",
        "answer_probability",
        "supporting_fact_probabilities",
    }

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        cls.vocab_file = write_test_vocab(
            directory, "where is jan ? city rome oslo in he . a big e"
        )
        config = HotpotQAPipeline().feature_config(
            {"long_length": 40, "global_length": 20}
        )
        cls.builder = make_builder(config, cls.vocab_file)
        cls.model = _model(cls.builder.tokenizer.vocab_size)
        cls.export(
            "hotpotqa", *export.build_serving_module(cls.model, cls.builder)
        )
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

    def test_raw_text(self):
        outputs = self.serve(**self.inputs)
        self.check(outputs)
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
            alone = self.serve(**row)
            got = alone["supporting_fact_probabilities"]
            self.assertEqual(got.shape, [1, 4, 7])
            self.assertAllEqual(got[:, 2:], tf.zeros([1, 2, 7]))
            self.assertAllEqual(got[:, :, 3:], tf.zeros([1, 4, 4]))
            self.check(
                {**alone, "supporting_fact_probabilities": got[:, :2, :3]},
                {name: x[i : i + 1] for name, x in self.expected.items()},
            )

    def test_features_of_another_length(self):
        used = {
            kind: int(
                np.count_nonzero(self.features[f"{kind}_token_ids"], 1).max()
            )
            for kind in ("long", "global")
        }
        self.assertLess(used["long"], 40)
        self.assertLess(used["global"], 20)
        outputs = self.serve(
            "features",
            **{
                name: tf.cast(
                    x[:, : used["global" if "global" in name else "long"]],
                    tf.int64,
                )
                for name, x in self.features.items()
            },
        )
        for name, length in (
            ("answer_type_logits", 3),
            ("answer_begin_logits", used["long"]),
            ("answer_end_logits", used["long"]),
        ):
            self.assertAllClose(
                self.logits[name][:, :length], outputs[name], atol=1e-4
            )

    def test_serialized_examples(self):
        """What `preprocess` writes, with labels, gives what raw text gives."""
        pipeline = HotpotQAPipeline()
        records = [
            HotpotQARecord(
                id=str(i),
                question=question,
                context=tuple(
                    Paragraph(title, tuple(x for x in sentences if x))
                    for title, sentences in zip(
                        _REQUEST["titles"][i],
                        _REQUEST["sentences"][i],
                        strict=True,
                    )
                ),
                answer="yes",
                supporting_facts=(("Jan", 0),),
            )
            for i, question in enumerate(_REQUEST["question"])
        ]
        encoder = pipeline.record_encoder(self.builder.config, self.vocab_file)
        with without_tracing():
            encoded = encoder.encode(records, "dev")
        (examples,) = zip(*(x.examples for x in encoded), strict=True)
        outputs = self.serve(
            "serialized_examples", examples=tf.constant(examples)
        )
        self.check_logits(outputs)
        # As many sentences as there are, whatever padding a request has.
        self.check(outputs)
        alone = self.serve(
            "serialized_examples", examples=tf.constant(examples[1:2])
        )
        got = alone["supporting_fact_probabilities"]
        self.assertEqual(got.shape, [1, 1, 1])
        self.assertAllClose(
            got, self.expected["supporting_fact_probabilities"][1:2, :1, :1]
        )
        self.assertAllEqual(alone["answer"], self.expected["answer"][1:2])

    def _task(self, model, *options):
        """How answers are found; not traced, which would take a while."""
        with mock.patch.object(
            export_lib, "make_text_module", lambda model, builder, task: task
        ):
            return export.build_serving_module(model, self.builder, *options)

    def test_decoding_options(self):
        """What the experiment says of answers is what the SavedModel does."""
        answers = set()
        for options in ((0.0, 30), (1.0, 30), (0.5, 1)):
            task = self._task(self.model, *options)
            features, context = task.encode(**self.inputs)
            outputs = task.decode(features, self.logits, context)
            self.check(outputs, self._decode(self.logits, *options))
            answers.add(tuple(outputs["answer"].numpy().tolist()))
        self.assertLen(answers, 3)
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
        expected = self._decode(logits)
        outputs = task.decode(features, logits, context)
        for name, value in expected.items():
            self.assertAllEqual(value, outputs[name], name)
        self.assertNotAllEqual(self.expected["answer"], expected["answer"])


if __name__ == "__main__":
    tf.test.main()
