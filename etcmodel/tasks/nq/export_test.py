import os
import shutil
import tempfile

import numpy as np
import tensorflow as tf

from etcmodel.models import EtcConfig
from etcmodel.tasks import export_lib
from etcmodel.tasks import serving_warmup_test
from etcmodel.tasks.nq import decoding
from etcmodel.tasks.nq import export
from etcmodel.tasks.nq import pipeline
from etcmodel.tasks.nq.model import build_nq_model
from etcmodel.tasks.nq.records import Candidate
from etcmodel.tasks.nq.records import NQRecord
from etcmodel.tasks.task_testing import run_without_package
from etcmodel.tasks.task_testing import write_test_vocab

_WORDS = "jan in paris rome oslo where is here .".split()
_ANSWERS = {
    f"{prefix}{kind}_answer_{end}"
    for prefix in ("", "best_")
    for kind in ("long", "short")
    for end in ("start", "end")
} | {
    "long_answer_score",
    "short_answer_score",
    "yes_no",
    "best_yes_no",
}
_LOGITS = {
    f"{kind}_answer_{end}_logits"
    for kind in ("long", "short")
    for end in ("start", "end")
} | {"answer_type_logits"}


def make_page(paragraphs: int, length: int = 11, seed: int = 0) -> NQRecord:
    """A page of paragraphs with a tag on both sides, each a candidate."""
    rng = np.random.default_rng([paragraphs, length, seed])
    tokens = rng.choice(_WORDS, [paragraphs, length]).tolist()
    for i, row in enumerate(tokens):
        row[0], row[-1] = "<P>", "</P>"
        row[i % (length - 2) + 1] = "Lives"  # Two tokens: live ##s.
    flat = tuple(token for row in tokens for token in row)
    return NQRecord(
        f"page_{paragraphs}_{seed}",
        "where is jan",
        flat,
        tuple(token[0] == "<" for token in flat),
        tuple(
            Candidate(i * length, (i + 1) * length, True)
            for i in range(paragraphs)
        ),
    )


class ExportTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        cls.path = os.path.join(directory, "saved_model")
        cls.vocab_file = write_test_vocab(
            directory,
            " ".join([*_WORDS, "live ##s [unused102] [unused103]"]),
        )
        cls.config = pipeline.NQPipeline().feature_config(
            {
                "long_length": 64,
                "global_length": 24,
                "stride": 32,
                "question_length": 8,
            }
        )
        cls.builder = pipeline.make_builder(cls.config, cls.vocab_file)
        cls.model = build_nq_model(
            EtcConfig.from_preset(
                "tiny",
                vocab_size=cls.builder.tokenizer.vocab_size,
                num_hidden_layers=1,
                initializer_range=0.5,
            )
        )
        module, cls.warmup = export.build_serving_module(
            cls.model,
            cls.builder,
            null_threshold=2.0,
            max_short_answer_words=5,
        )
        export_lib.export_saved_model(
            module,
            cls.path,
            model_name="nq",
            metadata={"task": "nq"},
            warmup_inputs=cls.warmup,
        )
        cls.signatures = tf.saved_model.load(cls.path).signatures
        cls.records = [make_page(n) for n in (2, 22, 10, 4, 16)]
        cls.inputs = cls._inputs(cls.records)
        made, cls.windows = tf.function(cls.builder.build)(**cls.inputs)
        cls.features = made.features
        cls.logits = cls.model(cls.features, training=False)
        cls.expected = decoding.decode_pages(
            decoding.answer_windows(cls.logits, cls.windows.words, 5),
            cls.windows.record,
            cls.inputs["candidate_starts"],
            cls.inputs["candidate_ends"],
            2.0,
        )

    @staticmethod
    def _inputs(records):
        return {
            name: tf.constant(value)
            for name, value in pipeline.raw_inputs(records).items()
        }

    def _check(self, expected, outputs):
        self.assertEqual(_ANSWERS, set(outputs) - _LOGITS)
        for name in _ANSWERS:
            if "score" in name:
                self.assertAllClose(
                    expected[name], outputs[name], rtol=1e-4, atol=1e-3
                )
            else:
                self.assertAllEqual(expected[name], outputs[name], msg=name)

    def _answer(self, **inputs):
        return self.signatures["serving_default"](**inputs)

    def test_raw_text(self):
        # 12 tokens a paragraph; 64 - 3 - 3 = 58 fit into a window, and the next
        # one begins 32 after it: 1 + ceil(max(12 n - 58, 0) / 32).
        self.assertAllEqual(
            [1, 8, 3, 1, 6], np.bincount(self.windows.record.numpy())
        )
        self._check(self.expected, self._answer(**self.inputs))
        # The weights are large enough for answers of several kinds.
        for name in ("best_long_answer_start", "long_answer_score"):
            self.assertGreater(len(set(self.expected[name].numpy())), 2)
        # Neither the batch matters nor how wide the padding is.
        for i, record in enumerate(self.records):
            expected = {
                name: value[i : i + 1] for name, value in self.expected.items()
            }
            inputs = self._inputs([record])
            self._check(expected, self._answer(**inputs))
            for name, padding in (("tokens", ""), ("is_html", False)):
                inputs[name] = tf.pad(
                    inputs[name], [[0, 0], [0, 7]], constant_values=padding
                )
            for name in ("candidate_starts", "candidate_ends"):
                inputs[name] = tf.pad(
                    inputs[name], [[0, 0], [0, 3]], constant_values=-1
                )
            self._check(expected, self._answer(**inputs))

    def test_features(self):
        outputs = self.signatures["features"](
            **{
                name: tf.cast(value, tf.int64)
                for name, value in self.features.items()
            }
        )
        self.assertEqual(_LOGITS, set(outputs))
        for name, value in self.logits.items():
            self.assertAllClose(value, outputs[name], rtol=1e-4, atol=1e-3)

    def test_serialized_examples(self):
        """What `preprocess` writes; every window has answers of its own."""
        encoder = pipeline.NQPipeline().record_encoder(
            "pages", self.config, self.vocab_file
        )
        examples = [
            example
            for encoded in encoder.encode(self.records, "predict")
            for example in encoded.examples
        ]
        outputs = self.signatures["serialized_examples"](
            examples=tf.constant(examples)
        )
        self.assertEqual(_ANSWERS | _LOGITS, set(outputs))
        for name, value in self.logits.items():
            self.assertAllClose(value, outputs[name], rtol=1e-4, atol=1e-3)
        record = self.windows.record.numpy()
        alone = decoding.decode_pages(
            decoding.answer_windows(self.logits, self.windows.words, 5),
            tf.range(len(record)),
            tf.gather(self.inputs["candidate_starts"], record),
            tf.gather(self.inputs["candidate_ends"], record),
            2.0,
        )
        self._check(alone, outputs)
        # A page of one window has the answers of `serving_default`.
        for page in (0, 3):
            (row,) = np.flatnonzero(record == page)
            self._check(
                {name: x[page] for name, x in self.expected.items()},
                {name: outputs[name][row] for name in _ANSWERS},
            )

    def test_works_without_this_package(self):
        request = {
            name: value.numpy().tolist() for name, value in self.inputs.items()
        }
        request["question"] = [x.decode() for x in request["question"]]
        request["tokens"] = [
            [x.decode() for x in row] for row in request["tokens"]
        ]
        result = run_without_package(self.path, request)
        for loader in ("python", "session"):
            self._check(self.expected, result[loader])
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
                self.assertTrue(np.isfinite(value.numpy()).all())

    def test_pages_without_candidates_or_words(self):
        """Alone, and beside one that has them."""
        page = self.records[2]
        bare = NQRecord("x", "", page.tokens, page.is_html, ())
        empty = NQRecord("y", "where", (), (), page.candidates)
        nothing = NQRecord("z", "", (), (), ())
        spans = [name for name in _ANSWERS if "answer_" in name]
        for records in ([page, bare, empty, nothing], [bare], [nothing]):
            outputs = self._answer(**self._inputs(records))
            for i, record in enumerate(records):
                if record is page:
                    self._check(
                        {name: x[2] for name, x in self.expected.items()},
                        {name: x[i] for name, x in outputs.items()},
                    )
                    continue
                for name in spans:
                    if "score" not in name:
                        self.assertEqual(-1, outputs[name][i], msg=name)
                self.assertLess(outputs["long_answer_score"][i], -1e6)
        # No pages at all.
        outputs = self._answer(
            question=tf.zeros([0], tf.string),
            tokens=tf.zeros([0, 0], tf.string),
            is_html=tf.zeros([0, 0], tf.bool),
            candidate_starts=tf.zeros([0, 0], tf.int32),
            candidate_ends=tf.zeros([0, 0], tf.int32),
        )
        for value in outputs.values():
            self.assertEqual([0], value.shape)

    def test_a_page_of_150000_words(self):
        long = make_page(500, 300)
        self.assertLen(long.tokens, 150_000)
        outputs = self._answer(**self._inputs([long, self.records[0]]))
        self.assertIn(
            (
                outputs["best_long_answer_start"][0],
                outputs["best_long_answer_end"][0],
            ),
            [(x.start, x.end) for x in long.candidates],
        )
        self._check(
            {name: x[0] for name, x in self.expected.items()},
            {name: x[1] for name, x in outputs.items()},
        )


if __name__ == "__main__":
    tf.test.main()
