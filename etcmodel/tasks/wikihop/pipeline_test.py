import io
import json
import tempfile

import numpy as np
import tensorflow as tf

from etcmodel.datasets.records import Source
from etcmodel.datasets.wikihop import WikiHopRecord
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.feature_utils import etc_features
from etcmodel.models import EtcConfig
from etcmodel.tasks.task_testing import without_tracing
from etcmodel.tasks.task_testing import write_test_vocab
from etcmodel.tasks.wikihop import features
from etcmodel.tasks.wikihop import pipeline as pipeline_lib
from etcmodel.testing import real_data_path

_RECORD = WikiHopRecord(
    id="a",
    query="country jan",
    supports=("Jan lives in Brno. He is a cook.", "Brno is in Poland."),
    candidates=("Austria", " poland"),
    answer="Poland",
    source=Source("d.json", 7),
)


class PipelineTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pipeline = pipeline_lib.WikiHopPipeline()
        cls.vocab_file = write_test_vocab(
            cls.enterClassContext(tempfile.TemporaryDirectory()),
            "austria poland country jan lives in brno . he is a cook",
        )
        # Real records are traced.
        cls.enterClassContext(without_tracing())

    def _encoder(self, **sizes):
        config = self.pipeline.feature_config(sizes)
        return self.pipeline.record_encoder(config, self.vocab_file)

    def test_raw_inputs_are_padded(self):
        other = WikiHopRecord("b", "q", ("x",), ("c1", "c2", "\u00e9"))
        inputs = self.pipeline.serving_inputs([_RECORD, other])
        self.assertEqual([b"country jan", b"q"], inputs["query"].tolist())
        self.assertEqual(
            [[b"Austria", b" poland", b""], [b"c1", b"c2", b"\xc3\xa9"]],
            inputs["candidates"].tolist(),
        )
        self.assertEqual([b"x", b""], inputs["supports"].tolist()[1])

    def test_feature_config_keeps_what_is_not_given(self):
        config = self.pipeline.feature_config(
            {"long_length": 512, "global_length": None}
        )
        self.assertEqual(features.WikiHopFeatureConfig(512, 430, 200), config)

    def test_encodes_labels_and_counts(self):
        (((serialized,), counts),) = self._encoder(long_length=64).encode(
            [_RECORD], "train"
        )
        example = tf.train.Example.FromString(serialized).features.feature
        self.assertEqual([1.0], example["label_id"].float_list.value)
        self.assertEqual([1], example["is_real_example"].int64_list.value)
        self.assertEqual([b"a"], example["example_id"].bytes_list.value)
        self.assertEqual(
            [b"Austria", b" poland"], example["candidates"].bytes_list.value
        )
        self.assertEqual(
            [b"Poland"], example["ground_truth_answer"].bytes_list.value
        )
        self.assertEqual(2, counts["candidates"])
        self.assertEqual(2, counts["documents"])
        self.assertEqual(3, counts["sentences"])
        self.assertEqual(1, counts["links"])  # "Poland" in the documents.
        self.assertEqual(0, counts["tokens_cut"])
        self.assertEqual(0, counts["records_cut"])
        self.assertEqual(0, counts["records_without_text_left"])

    def test_encodes_no_labels_for_prediction(self):
        (((serialized,), _),) = self._encoder().encode([_RECORD], "predict")
        example = tf.train.Example.FromString(serialized).features.feature
        self.assertNotIn("label_id", example)
        self.assertNotIn("ground_truth_answer", example)

    def test_counts_what_is_cut(self):
        # 2 candidate tokens, 2 of the query; 5 + 5 + 5 of the documents.
        ((_, counts),) = self._encoder(long_length=14).encode(
            [_RECORD], "train"
        )
        self.assertEqual(19, counts["tokens"])
        self.assertEqual(5, counts["tokens_cut"])
        self.assertEqual(1, counts["sentences_cut"])
        self.assertEqual(1, counts["records_cut"])

    def test_candidates_that_do_not_fit(self):
        many = WikiHopRecord(
            *("b", "country", ("jan",), ("austria",) * 5000, "austria"),
            source=Source("d.json", 3),
        )
        encoder = self._encoder()
        with self.assertRaisesRegex(
            RecordError, r"d.json, record 3 \(id 'b'\).*5000.*--global_length"
        ):
            encoder.encode([many], "train")
        # In a batch it is told, too.
        with self.assertRaises(UserError):
            encoder.encode([_RECORD, many], "train")

    def test_query_that_does_not_fit(self):
        long = WikiHopRecord("b", "jan " * 99, ("jan",), ("brno",), "brno")
        with self.assertRaisesRegex(RecordError, "99 tokens"):
            self._encoder(long_length=50).encode([long], "train")

    def test_long_document_is_cut(self):
        long = WikiHopRecord(
            "b", "jan", ("Jan is in Brno. " * 2500,), ("brno",), "brno"
        )
        ((_, counts),) = self._encoder().encode([long], "train")
        self.assertEqual(2500, counts["sentences"])
        self.assertEqual(2500 - 200, counts["sentences_cut"])
        self.assertEqual(5 * (2500 - 200), counts["tokens_cut"])

    def test_empty_documents_are_harmless(self):
        empty = WikiHopRecord(
            "b", "jan", ("", "Jan is in Brno.", " ", ""), ("brno",), "brno"
        )
        ((_, counts),) = self._encoder().encode([empty], "train")
        self.assertEqual(5, counts["tokens"] - 2)
        self.assertEqual(0, counts["tokens_cut"])

    def test_wrong_vocabularies(self):
        for file in (__file__, "/no/such/file", self.get_temp_dir()):
            with self.assertRaisesRegex(UserError, f"--vocab_file={file}"):
                pipeline_lib.make_builder(
                    self.pipeline.feature_config({}), file
                )

    def test_predictions_and_score(self):
        predictions = {}
        outputs = {"answer": np.array([b" poland"], dtype=object)}
        self.pipeline.collect([_RECORD], outputs, predictions, {})
        stream = io.StringIO()
        self.pipeline.dataset.write_predictions(predictions, stream)
        self.assertEqual({"a": " poland"}, json.loads(stream.getvalue()))
        gold = {"a": self.pipeline.dataset.gold(_RECORD)}
        self.assertEqual(
            {"accuracy": 1.0}, self.pipeline.dataset.score(predictions, gold)
        )

    def test_inspects_a_record(self):
        config = self.pipeline.feature_config(
            {"long_length": 14, "global_length": 20}
        )
        inspection = self.pipeline.inspect(
            _RECORD,
            config,
            EtcConfig.from_preset("tiny"),
            self.vocab_file,
        )
        self.assertEqual(
            "austria poland country jan jan lives in brno . brno is in poland "
            ".".split(),
            list(inspection.long_labels),
        )
        self.assertEqual(
            [
                "Austria",
                " poland",
                "country",
                "jan",
                "doc 0",
                "sent 0.0",
                "doc 1",
                "sent 1.0",
            ],
            list(inspection.global_labels),
        )
        text = inspection.text()
        self.assertIn("7 (id a)", text)
        self.assertIn("19, of which 5 cut", text)
        self.assertEqual([1, 14, 20], inspection.side_inputs.l2g_att_mask.shape)


class RealRecordsTest(tf.test.TestCase):
    def test_raw_text_and_records_give_the_same_features(self):
        pipeline = pipeline_lib.WikiHopPipeline()
        path = real_data_path("wikihop/train_22.json")
        vocab_file = real_data_path("vocab/bert_uncased_vocab.txt")
        config = pipeline.feature_config(
            {"long_length": 1024, "global_length": 256}
        )
        records = list(
            pipeline.dataset.FORMAT.read(path, "train", BadRecords())
        )[:12]
        encoder = pipeline.record_encoder(config, vocab_file)
        encoded = encoder.encode(records, "train")
        examples = [x for stored, _ in encoded for x in stored]
        stored = etc_features.parse(
            tf.constant(examples), config.long_length, config.global_length
        )
        builder = pipeline_lib.make_builder(config, vocab_file)
        for start in range(0, 12, 3):  # Batches of another size.
            batch = records[start : start + 3]
            inputs = pipeline.serving_inputs(batch)
            raw = builder(*(tf.constant(x) for x in inputs.values()))
            self.assertEqual(set(stored), set(raw))
            for name, value in raw.items():
                self.assertAllEqual(stored[name][start : start + 3], value)


if __name__ == "__main__":
    tf.test.main()
