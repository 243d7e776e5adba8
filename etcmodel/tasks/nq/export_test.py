import shutil
import tempfile

import numpy as np
import tensorflow as tf

from etcmodel.datasets.nq.records import Candidate
from etcmodel.datasets.nq.records import NQRecord
from etcmodel.models import EtcConfig
from etcmodel.tasks import model_testing
from etcmodel.tasks.nq import decoding
from etcmodel.tasks.nq import export
from etcmodel.tasks.nq import pipeline
from etcmodel.tasks.nq.model import build_nq_model
from etcmodel.tasks.task_testing import without_tracing
from etcmodel.tasks.task_testing import write_test_vocab

_WORDS = "jan in paris rome oslo where is here .".split()
# Two of four short answers have a higher score.
_THRESHOLD = 2.4


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


class ExportTest(model_testing.SavedModelTestCase):
    answers = {
        "long_answer_start",
        "long_answer_end",
        "long_answer_score",
        "short_answer_start",
        "short_answer_end",
        "short_answer_score",
        "yes_no",
        # Without a threshold.
        "best_long_answer_start",
        "best_long_answer_end",
        "best_short_answer_start",
        "best_short_answer_end",
        "best_yes_no",
    }
    rtol = 1e-4
    atol = 1e-3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        cls.vocab_file = write_test_vocab(
            directory, " ".join([*_WORDS, "live ##s [unused102] [unused103]"])
        )
        cls.config = pipeline.NQPipeline().feature_config(
            {
                "long_length": 64,
                "global_length": 24,
                "stride": 32,
                "question_length": 8,
            }
        )
        builder = pipeline.make_builder(cls.config, cls.vocab_file)
        model = build_nq_model(
            EtcConfig.from_preset(
                "tiny",
                vocab_size=builder.tokenizer.vocab_size,
                num_hidden_layers=1,
            )
        )
        model_testing.set_random_weights(model, 0.4, seed=5)
        cls.export(
            "nq", *export.build_serving_module(model, builder, _THRESHOLD, 5)
        )
        cls.records = [make_page(n) for n in (2, 22, 10, 4)]
        cls.inputs = cls._inputs(cls.records)
        made, cls.windows = builder.build(**cls.inputs)
        cls.features = made.features
        cls.logits = model(cls.features, training=False)
        cls.expected = decoding.decode_pages(
            decoding.answer_windows(cls.logits, cls.windows.words, 5),
            cls.windows.record,
            cls.inputs["candidate_starts"],
            cls.inputs["candidate_ends"],
            _THRESHOLD,
        )

    @staticmethod
    def _inputs(records):
        return {
            name: tf.constant(value)
            for name, value in pipeline.raw_inputs(records).items()
        }

    def test_raw_text(self):
        # 12 tokens a paragraph; 64 - 3 - 3 = 58 fit into a window, and the next
        # one begins 32 after it: 1 + ceil(max(12 n - 58, 0) / 32).
        self.assertAllEqual(
            [1, 8, 3, 1], np.bincount(self.windows.record.numpy())
        )
        self.check(self.serve(**self.inputs))
        # The weights are such that answers differ, and some are not given.
        for name in ("long_answer_start", "best_short_answer_start"):
            values = self.expected[name].numpy().tolist()
            self.assertGreater(len(set(values)), 2, values)
        self.assertIn(-1, self.expected["short_answer_start"][1:])
        # Neither the batch matters nor how wide the padding is.
        for i, record in enumerate(self.records):
            expected = {
                name: value[i : i + 1] for name, value in self.expected.items()
            }
            inputs = self._inputs([record])
            self.check(self.serve(**inputs), expected)
            for name, padding in (("tokens", ""), ("is_html", False)):
                inputs[name] = tf.pad(
                    inputs[name], [[0, 0], [0, 7]], constant_values=padding
                )
            for name in ("candidate_starts", "candidate_ends"):
                inputs[name] = tf.pad(
                    inputs[name], [[0, 0], [0, 3]], constant_values=-1
                )
            self.check(self.serve(**inputs), expected)

    def test_serialized_examples(self):
        """What `preprocess` writes; every window has answers of its own."""
        encoder = pipeline.NQPipeline().record_encoder(
            self.config, self.vocab_file
        )
        with without_tracing():
            encoded = encoder.encode(self.records, "predict")
        examples = [example for x in encoded for example in x.examples]
        outputs = self.serve(
            "serialized_examples", examples=tf.constant(examples)
        )
        self.check_logits(outputs)
        record = self.windows.record.numpy()
        alone = decoding.decode_pages(
            decoding.answer_windows(self.logits, self.windows.words, 5),
            tf.range(len(record)),
            tf.gather(self.inputs["candidate_starts"], record),
            tf.gather(self.inputs["candidate_ends"], record),
            _THRESHOLD,
        )
        self.check(outputs, alone)
        # A page of one window has the answers of `serving_default`.
        for page in (0, 3):
            (row,) = np.flatnonzero(record == page)
            self.check(
                {name: outputs[name][row] for name in self.answers},
                {name: x[page] for name, x in self.expected.items()},
            )

    def test_pages_without_candidates_or_words(self):
        """Alone, and beside one that has them."""
        page = self.records[2]
        bare = NQRecord("x", "", page.tokens, page.is_html, ())
        empty = NQRecord("y", "where", (), (), page.candidates)
        nothing = NQRecord("z", "", (), (), ())
        spans = [x for x in self.answers if x.endswith(("_start", "_end"))]
        for records in ([page, bare, empty, nothing], [bare], [nothing]):
            outputs = self.serve(**self._inputs(records))
            for i, record in enumerate(records):
                if record is page:
                    self.check(
                        {name: x[i] for name, x in outputs.items()},
                        {name: x[2] for name, x in self.expected.items()},
                    )
                    continue
                for name in spans:
                    self.assertEqual(-1, outputs[name][i], msg=name)
                self.assertLess(outputs["long_answer_score"][i], -1e6)
        # No pages at all.
        outputs = self.serve(
            question=tf.zeros([0], tf.string),
            tokens=tf.zeros([0, 0], tf.string),
            is_html=tf.zeros([0, 0], tf.bool),
            candidate_starts=tf.zeros([0, 0], tf.int32),
            candidate_ends=tf.zeros([0, 0], tf.int32),
        )
        for value in outputs.values():
            self.assertEqual([0], value.shape)

    def test_a_long_page(self):
        """Beside a short one; some 250 windows."""
        long = make_page(80, 100)
        outputs = self.serve(**self._inputs([long, self.records[0]]))
        self.assertIn(
            (
                outputs["best_long_answer_start"][0],
                outputs["best_long_answer_end"][0],
            ),
            [(x.start, x.end) for x in long.candidates],
        )
        self.check(
            {name: x[1] for name, x in outputs.items()},
            {name: x[0] for name, x in self.expected.items()},
        )


if __name__ == "__main__":
    tf.test.main()
