import os

import matplotlib.image
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.inspection import classification_plots as plots


def _predictions(labels, probability=0.5):
    return {
        str(i): {"label": x, "probabilities": {x: probability}}
        for i, x in enumerate(labels)
    }


def _gold(labels):
    return {str(i): x for i, x in enumerate(labels)}


class ReportTest(tf.test.TestCase):
    def _rows(self, pairs):
        lines = map(str.split, plots.make_report(pairs).splitlines())
        return {x[0]: x[1:] for x in lines if len(x) > 1}

    def test_one_label(self):
        """`c` is only predicted, and one document has no prediction."""
        rows = self._rows([*zip("aaab", "aabc", strict=True)])
        self.assertEqual(["1.00", "0.67", "0.80", "3"], rows["a"])
        rows = self._rows([*zip("abb", ["a", "c", plots.MISSING], strict=True)])
        self.assertEqual(["0.00", "0.00", "0.00", "2"], rows["b"])
        self.assertEqual(["0.00", "0.00", "0.00", "0"], rows["c"])
        self.assertNotIn("(no", rows)

    def test_several_labels(self):
        rows = self._rows(
            [(("a",), ["a", "b", "c"]), (("a", "b"), []), ((), [])]
        )
        self.assertEqual(["1.00", "0.50", "0.67", "2"], rows["a"])
        self.assertEqual(["0.00", "0.00", "0.00", "1"], rows["b"])
        rows = self._rows([(("a",), ["a"]), ((), ["a"])])
        self.assertEqual(["0.50", "1.00", "0.67", "1"], rows["a"])
        self.assertIn("no labels", plots.make_report([((), [])]))


class ConfusionTest(tf.test.TestCase):
    def _check(self, names, counts, pairs):
        axes = plots.draw_confusion(pairs).axes[0]
        for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
            self.assertEqual(names, [x.get_text() for x in ticks])
        self.assertAllEqual(counts, axes.images[0].get_array())

    def test_counts(self):
        """`c` is only predicted, and one document has no prediction."""
        counts = [[2, 1, 0], [0, 0, 1], [0, 0, 0]]
        self._check(
            ["a", "b", "c"], counts, [*zip("aaab", "aabc", strict=True)]
        )
        counts = np.pad(counts, (0, 1))
        counts[1, 3] = 1
        self._check(
            ["a", "b", "c", plots.MISSING],
            counts,
            [*zip("aaabb", [*"aabc", plots.MISSING], strict=True)],
        )

    def test_many_labels(self):
        """Rare labels are grouped: "00" occurs once, "01" only predicted."""
        names = [f"{i:02}" for i in range(42)]
        truths = [*names[2:] * 2, "00", "02"]
        found = [*names[2:] * 2, "01", "01"]
        counts = np.diag([2] * 40 + [1])
        counts[0, 40] = 1
        shown = [*names[2:], plots.OTHERS]
        self._check(shown, counts, [*zip(truths, found, strict=True)])


class PlotsTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, predictions, gold):
        """Writes the plots; returns the endings of the written files."""
        self.prefix = os.path.join(self.get_temp_dir(), "a", "metrics")
        paths = plots.write_plots(self.prefix, predictions, gold)
        self.assertTrue(all(map(os.path.exists, paths)))
        return tuple(x.removeprefix(self.prefix) for x in paths)

    @parameterized.parameters(2, 40)
    def test_pictures(self, number):
        names = [f"label ${i} of a very long name" for i in range(number)]
        written = self._write(_predictions(names), _gold(names))
        self.assertEqual(plots.ENDINGS, written)
        for ending in written[1:]:
            image = matplotlib.image.imread(f"{self.prefix}{ending}")
            self.assertGreater(min(image.shape[:2]), 400)
            self.assertLess(max(image.shape[:2]), 3000)
            self.assertGreater(image[..., :3].std(), 0.05)

    def test_written_files(self):
        """For several labels, writes no matrix; for numbers, writes nothing."""
        predictions = {
            "0": {"label": [], "probabilities": {"a": 0.25, "b": 0.45}}
        }
        written = self._write(predictions, _gold([("b",), ("a", "b")]))
        self.assertEqual(("_report.txt", "_calibration.png"), written)
        written = self._write({"0": {"label": "a"}}, _gold("ab"))
        self.assertEqual(("_report.txt", "_confusion.png"), written)
        self.assertEmpty(self._write({}, {"0": 0.5}))

    @parameterized.parameters(
        # The expected points are computed by hand. Labels without a probability
        # do not count.
        (
            [
                {"label": "a", "probabilities": {"a": 0.62, "b": 0.38}},
                {"label": "a", "probabilities": {"a": 0.7, "b": 0.3}},
                {"label": "b", "probabilities": {"a": 0.0, "b": 1.0000001}},
                {"label": "b"},
            ],
            "abbb",
            [[0.66, 0.5], [1, 1]],
        ),
        (
            [
                {"label": [], "probabilities": {"a": 0.25, "b": 0.45}},
                {"label": ["a"], "probabilities": {"a": 0.85, "b": 0.25}},
            ],
            [("b",), ("a", "b")],
            [[0.25, 0.5], [0.45, 1], [0.85, 1]],
        ),
    )
    def test_calibration(self, predictions, gold, expected):
        """Points have a mean probability and a share of correct labels."""
        kind = "single" if isinstance(gold, str) else "multiple"
        judged = [
            pair
            for prediction, truth in zip(predictions, gold, strict=True)
            for pair in plots._judged(prediction, truth, kind)
        ]
        (axes,) = plots.draw_calibration(judged).axes
        self.assertAllClose(expected, axes.lines[1].get_xydata())


if __name__ == "__main__":
    tf.test.main()
