import io
import json

import numpy as np
from absl.testing import absltest
from absl.testing import parameterized
from sklearn import metrics

from etcmodel.datasets import selection
from etcmodel.datasets.unit_positions import Selected
from testing import samples
from testing.helpers import real_data_path


class RecordsTest(parameterized.TestCase):
    @parameterized.parameters("selected", "evidence", "supporting_facts", "why")
    def test_reads_a_record(self, field):
        row = samples.selection()
        row[field] = row.pop("selected")
        reading = {"label_field": "why"} if field == "why" else {}
        (record,) = selection.make_format(**reading).read_rows([row])
        self.assertEqual(((0, 1),), record.selected)
        self.assertEqual(("Where is Brno?",), record.query)
        self.assertEqual(Selected(((0, 1),)), selection.gold(record))

    def test_paragraphs(self):
        (record,) = selection.make_format(units="paragraphs").read_rows(
            [samples.selection(selected=[1])]
        )
        self.assertEqual(Selected(((1, -1),)), selection.gold(record))
        with self.assertRaisesRegex(ValueError, "units is 'words'"):
            selection.make_format(units="words")

    def test_texts(self):
        row = {"text": "Brno is a city. It is.", "selected": ["It is."]}
        (record,) = selection.FORMAT.read_rows([row])
        self.assertEqual(Selected((), ("It is.",)), selection.gold(record))

    @parameterized.parameters(([], Selected()), (None, None), ("", None))
    def test_nothing_selected(self, value, expected):
        (record,) = selection.FORMAT.read_rows(
            [samples.selection(selected=value)], "predict"
        )
        self.assertEqual(expected, selection.gold(record))

    def test_real_hotpotqa(self):
        path = real_data_path("hotpotqa/dev_95.json")
        with open(path, encoding="utf-8") as stream:
            expected = json.load(stream)
        read = selection.make_format(id_field="_id").read(path)
        for record, value in zip(read, expected, strict=True):
            self.assertEqual(
                {tuple(x) for x in value["supporting_facts"]},
                {(record.sections[i].title, j) for i, j in record.selected},
            )


# If (0, 0) and (1, 1) are right: precision 1/2, recall 1/2, ranks 1 and 4.
_UNITS = [
    (0, 0, 0.9, True),
    (0, 1, 0.8, True),
    (1, 0, 0.4, False),
    (1, 1, 0.1, False),
]


class ScoreTest(parameterized.TestCase):
    def _check(self, expected, predictions, gold):
        scores = selection.score(predictions, gold)
        names = ("precision", "recall", "f1", "micro_f1")
        names += ("mean_average_precision",)[: len(expected) - 4]
        self.assertEqual(list(names), list(scores))
        self.assertSequenceAlmostEqual(expected, scores.values(), places=12)

    @parameterized.parameters(
        ([(0, 0), (1, 1)], (1 / 2, 1 / 2, 1 / 2, 1 / 2, (1 + 2 / 4) / 2)),
        # The third gold text is not in the prediction: the input was truncated.
        (
            [(0, 0), (1, 1), (7, 0)],
            (1 / 2, 1 / 3, 2 / 5, 2 / 5, (1 + 2 / 4 + 3 / 5) / 3),
        ),
        # A whole paragraph is right; its texts have the ranks 3 and 4.
        ([(1, -1)], (0, 0, 0, 0, (1 / 3 + 2 / 4) / 2)),
        # No unit is right.
        ([], (0, 0, 0, 0)),
    )
    def test_positions(self, right, expected):
        gold = {"a": Selected(tuple(right))}
        self._check(expected, {"a": _UNITS}, gold)

    @parameterized.parameters(
        (["B b. C c."], (1 / 2, 1 / 2, 1 / 2, 1 / 2, (1 / 2 + 2 / 3) / 2)),
        # The document lacks one gold text.
        (["A a.", "X"], (1 / 2, 1 / 2, 1 / 2, 1 / 2, (1 + 2 / 4) / 2)),
    )
    def test_texts(self, texts, expected):
        units = [
            (0, 0, 0.9, True, "A a."),
            (0, 1, 0.8, True, "B b."),
            (0, 2, 0.4, False, "C\nc."),
        ]
        self._check(expected, {"a": units}, {"a": Selected((), tuple(texts))})

    def test_means(self):
        gold = {
            "a": Selected(((0, 0), (1, 1))),
            "empty": Selected(),
            "missing": Selected(((0, 0),)),
            "missing and empty": Selected(),
        }
        predictions = {"a": _UNITS, "empty": [(0, 0, 0.1, False)]}
        mean = (1 / 2 + 1 + 0 + 0) / 4
        # Micro F1: 1 of 2 selected units is right, and 1 of 3 gold ones is
        # found.
        self._check(
            (mean, mean, mean, 2 / 5, (3 / 4 + 0) / 2), predictions, gold
        )
        self._check((0, 0, 0, 0), {}, {})

    def test_average_precision_is_scikit_learns(self):
        random = np.random.default_rng(2)
        scores, right = random.random(20), random.random(20) < 0.3
        result = selection.score(
            {"a": [(0, i, x, False) for i, x in enumerate(scores)]},
            {"a": Selected(tuple((0, int(i)) for i in np.flatnonzero(right)))},
        )
        self.assertAlmostEqual(
            metrics.average_precision_score(right, scores),
            result["mean_average_precision"],
            places=12,
        )

    def test_write_predictions(self):
        stream = io.StringIO()
        selection.write_predictions(
            {"é": [(0, 0, np.float32(0.5), True), (0, 1, 0.25, False, "A")]},
            stream,
        )
        self.assertEqual(
            '{"id": "é", "selected": [[0, 0]], '
            '"scores": [[0, 0, 0.5], [0, 1, 0.25]]}\n',
            stream.getvalue(),
        )


if __name__ == "__main__":
    absltest.main()
