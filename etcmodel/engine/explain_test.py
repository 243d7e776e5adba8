import tempfile
import types
from unittest import mock

import tensorflow as tf

from etcmodel.datasets.narrativeqa.records import NarrativeQARecord
from etcmodel.datasets.wikihop import WikiHopRecord
from etcmodel.engine import explain
from etcmodel.engine.trained_model import TrainedModel
from etcmodel.errors import UserError
from etcmodel.models import EtcConfig
from etcmodel.pipeline.spec import load
from etcmodel.readers.records import Source
from etcmodel.tasks import registry
from testing import small_read_twice
from testing.tasks import write_test_vocab

_WORDS = "jan novak lives in brno . it is a city who where does live ? oslo"
_SIZES = {"long_length": 24, "global_length": 24}
_SEGMENTS = {"block_length": 12, "block_overlap": 2, "max_question_length": 5}


def make_trained(task, **sizes):
    """Makes a task's model with random weights."""
    spec = registry.get(task)
    vocab_file = write_test_vocab(tempfile.mkdtemp(), _WORDS)
    preprocessor = spec.make_preprocessor(
        spec.make_preprocessing_config(sizes), vocab_file
    )
    size = preprocessor.tokenizer.vocab_size
    if spec.reads_segments:
        config = small_read_twice.make_config(
            vocab_size=size, max_seq_length=12, **small_read_twice.PAPER
        )
    else:
        config = EtcConfig.from_preset(
            "tiny", vocab_size=size, num_hidden_layers=1
        )
    task_model = spec.make_model(sizes=sizes)
    return TrainedModel(
        spec, task_model.build(config), task_model, preprocessor, {}, "", config
    )


def explained(trained, raw, predicted, record=None, **options):
    """Makes an attention map for a given prediction."""
    answers = types.SimpleNamespace(predict=lambda raw: [predicted])
    return explain.explain(trained, answers, raw, record, **options)


def shown_text(found):
    return [
        "".join(x.space + x.text for x in found.tokens[y.first : y.last])
        for y in found.blocks
    ]


class ExplainTest(tf.test.TestCase):
    def test_answer(self):
        """Explains inputs without a record; the last sentence is cut."""
        trained = make_trained("answer", long_length=16, global_length=16)
        found = explained(
            trained,
            {
                "query": ["Where does Jan live?"],
                "titles": ["Jan"],
                "texts": [["Jan lives in Brno. It is a city. Who?"]],
            },
            {"answer": "Brno", "no_answer_probability": 0.25, "evidence": []},
        )
        self.assertEqual("answer", found.title)
        self.assertEqual(
            ["[CLS]", "Where does Jan live?", "Jan", "Jan lives in Brno."],
            shown_text(found)[:4],
        )
        self.assertEqual(
            [
                (
                    "Predicted answer",
                    "answer: Brno; no_answer_probability: 0.25; evidence: none",
                )
            ],
            found.answers,
        )
        (mark,) = found.marks
        self.assertEqual("Brno", found.tokens[mark.first].text)
        kinds = [x.kind for x in found.global_tokens]
        self.assertEqual(["cls", *["question"] * 5, "paragraph"], kinds[:7])
        self.assertEqual(
            ["texts"], [x.name for x in found.cuts if x.text.endswith("Who?")]
        )
        self.assertIn(("document", "13 tokens, of which 7 cut"), found.summary)
        few = explained(
            trained,
            {"query": ["Who?"], "titles": [""], "texts": [["Jan"]]},
            {"answer": ""},
            tokens=[2, 0],
        )
        self.assertEqual([0, 2], few.rows)
        self.assertLen(few.layers[0].heads["average"].keys, 2)
        self.assertEmpty(few.cuts)
        raw = {"query": ["Who?"], "titles": [""], "texts": [["Jan"]]}
        for tokens, message in (
            ([99, 0], "`tokens`: .* are 0 to 99"),
            ([], "`tokens` is empty. Give at least one number"),
        ):
            with self.assertRaisesRegex(UserError, message):
                explained(trained, raw, {}, tokens=tokens)
        # Errors that are not about `tokens` keep their messages.
        with (
            mock.patch.object(
                explain.map_records, "map_layout", side_effect=ValueError("odd")
            ),
            self.assertRaisesRegex(ValueError, "^odd"),
        ):
            explained(trained, raw, {}, tokens=[0])

    def test_wikihop(self):
        record = WikiHopRecord(
            "small",
            "city jan",
            ("Jan lives in Brno.",),
            ("Oslo", "Brno"),
            "Brno",
            source=Source("data.json", 3),
        )
        trained = make_trained("wikihop", long_length=24, global_length=16)
        raw = load(trained.spec.preprocessor).raw(record)
        found = explained(trained, raw, "Oslo", record)
        self.assertEqual("wikihop: small", found.title)
        self.assertEqual(
            [("Predicted answer", "Oslo"), ("Gold answer", "Brno")],
            found.answers,
        )
        self.assertContainsSubset(
            [("record", "3 (id small)"), ("candidates", "2, of which 0 cut")],
            found.summary,
        )
        self.assertEqual(
            ["Oslo", "Brno", "city jan", "Jan lives in Brno."],
            shown_text(found),
        )
        self.assertEqual(
            [
                ("Oslo", "candidate"),
                ("Brno", "candidate"),
                ("city", "question"),
            ],
            [tuple(x) for x in found.global_tokens[:3]],
        )
        # The map links candidates to their own tokens, and Brno to its mention,
        # long token 7. Long tokens are numbered after the 6 global tokens.
        self.assertEqual(
            [(6, 0, ""), (7, 1, ""), (13, 1, "")],
            [tuple(x) for x in found.links],
        )
        with self.assertRaisesRegex(UserError, "`window=1`: expected 0 to 0"):
            explained(trained, raw, "Oslo", record, window=1)

    def test_read_twice(self):
        trained = make_trained("read_twice_narrativeqa", **_SEGMENTS)
        text = "Jan Novak lives in Brno. It is a city. Where is Oslo?"
        record = NarrativeQARecord(
            "1",
            "Where does Jan live?",
            text,
            ("in Brno",),
            source=Source("data.csv", 0),
        )
        raw = load(trained.spec.preprocessor).raw(record)
        found = explained(trained, raw, "Oslo", record)
        self.assertEqual(
            "[CLS] Where does Jan live? [SEP]", shown_text(found)[0]
        )
        self.assertGreater(len(found.segments), 1)
        self.assertIn("Jan Novak", [x.label for x in found.memories])
        self.assertIn(("segments", str(len(found.segments))), found.summary)
        self.assertEqual({"gold", "predicted"}, {x.kind for x in found.marks})
        # A segment attends to memories in the second read.
        node = found.default_node
        self.assertEqual(found.num_tokens, node)
        self.assertNotEmpty(found.reads(node))
        self.assertAllGreaterEqual(
            [*found.reads(node)], node + len(found.segments)
        )
        parts = make_trained(
            "read_twice_narrativeqa", num_blocks_per_example=1, **_SEGMENTS
        )
        second = explained(parts, raw, "Oslo", record, window=1)
        self.assertEqual(["Segment 1"], second.segments)
        self.assertEqual(shown_text(found)[2:4], shown_text(second))
        self.assertStartsWith(second.cuts[0].name, "document, read separately")
        with self.assertRaisesRegex(UserError, "The document has no tokens"):
            explained(trained, {"question": "a", "document": ""}, "")

    def test_windows(self):
        trained = make_trained(
            "nq",
            long_length=24,
            global_length=24,
            question_length=5,
            include_html_tokens=False,
            stride=8,
        )
        words = "Jan lives in Brno . It is a city .".split() * 3
        raw = {
            "question": "Where does Jan live ?",
            "tokens": words,
            "is_html": [False] * len(words),
            "candidate_starts": [0],
            "candidate_ends": [len(words)],
        }
        first, second = (
            explained(trained, raw, None, window=i) for i in range(2)
        )
        self.assertEqual(
            shown_text(first)[-2].split()[8:12],
            shown_text(second)[-2].split()[:4],
        )
        self.assertIn("in other windows", first.cuts[0].name)
        self.assertEqual("window", second.summary[-2][0])
        number = int(second.summary[-2][1].split()[-1]) + 1
        with self.assertRaisesRegex(
            UserError,
            f"`window=99`: expected 0 to {number - 1}; the record has {number} "
            "windows.",
        ):
            explained(trained, raw, None, window=99)


if __name__ == "__main__":
    tf.test.main()
