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


class ConfusionMatrixTest(tf.test.TestCase):
    def _check(self, rows, columns, counts, predictions, gold):
        matrix = plots.confusion_matrix(predictions, gold)
        self.assertEqual(rows, matrix.rows)
        self.assertEqual(columns, matrix.columns)
        self.assertAllEqual(counts, matrix.counts)
        (axes, _) = plots._draw_matrix(matrix).axes
        counts = np.array(counts)
        drawn = {
            (text.get_position()[::-1]): text.get_text() for text in axes.texts
        }
        self.assertEqual(
            {x: str(count) for x, count in np.ndenumerate(counts) if count},
            drawn,
        )
        shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        self.assertAllClose(shares, axes.images[0].get_array())

    def test_one_label(self):
        """`c` is only predicted, and one document has no prediction."""
        names = ("a", "b", "c")
        gold = _gold("aaabb")
        predictions = _predictions("aabc")
        counts = [[2, 1, 0], [0, 0, 1], [0, 0, 0]]
        self._check(
            names,
            (*names, plots.MISSING),
            np.pad(counts, ((0, 0), (0, 1))) + [[0] * 4, [0, 0, 0, 1], [0] * 4],
            predictions,
            gold,
        )
        del gold["4"]
        self._check(names, names, counts, predictions, gold)

    def test_several_labels(self):
        self._check(
            ("a", "b", "c"),
            ("found", "missed", "added"),
            [[1, 1, 0], [0, 1, 1], [0, 0, 1]],
            {"0": {"label": ["a", "b", "c"]}, "1": {"label": []}},
            _gold([("a",), ("a", "b"), ()]),
        )

    def test_many_labels(self):
        """Rare labels are grouped: "00" occurs once, "01" only predicted."""
        names = [f"{i:02}" for i in range(42)]
        gold = _gold([*names[2:] * 2, "00", "02"])
        predictions = _predictions([*names[2:] * 2, "01", "01"])
        counts = np.diag([2] * 40 + [1])
        counts[0, 40] = 1
        shown = (*names[2:], plots.OTHERS)
        self._check(shown, shown, counts, predictions, gold)


class CalibrationTest(tf.test.TestCase):
    def test_one_label(self):
        """Bins are counted by hand; predictions need probabilities."""
        predictions = {
            "0": {"label": "a", "probabilities": {"a": 0.62, "b": 0.38}},
            "1": {"label": "a", "probabilities": {"a": 0.7, "b": 0.3}},
            "2": {"label": "b", "probabilities": {"a": 0.0, "b": 1.0}},
            "3": {"label": "b"},
        }
        curve = plots.calibration(predictions, _gold("abbba"))
        self.assertAllClose([0.66, 1], curve.probabilities)
        self.assertAllClose([0.5, 1], curve.accuracies)
        self.assertAllEqual([2, 1], curve.counts)
        self.assertAllClose(0.16 * 2 / 3, curve.expected_error)
        (top, bottom) = plots._draw_calibration(curve).axes
        self.assertAllClose([[0.66, 0.5], [1, 1]], top.lines[1].get_xydata())
        self.assertEqual([2, 1], [x.get_height() for x in bottom.patches])

    def test_several_labels(self):
        predictions = {
            "0": {"label": [], "probabilities": {"a": 0.25, "b": 0.45}},
            "1": {"label": ["a"], "probabilities": {"a": 0.85, "b": 0.25}},
        }
        curve = plots.calibration(predictions, _gold([("b",), ("a", "b")]))
        self.assertAllClose([0.25, 0.45, 0.85], curve.probabilities)
        self.assertAllClose([0.5, 1, 1], curve.accuracies)
        self.assertAllEqual([2, 1, 1], curve.counts)

    def test_nothing_predicted(self):
        curve = plots.calibration({}, _gold("ab"))
        self.assertEqual((0, 0.0), (len(curve.counts), curve.expected_error))


class PicturesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        number=[2, 40],
        write=[plots.write_confusion_matrix, plots.write_calibration],
    )
    def test_writes_png(self, number, write):
        names = [f"label ${i} of a very long name" for i in range(number)]
        path = os.path.join(self.get_temp_dir(), "a", "b.png")
        self.assertEqual(path, write(path, _predictions(names), _gold(names)))
        image = matplotlib.image.imread(path)
        self.assertGreater(min(image.shape[:2]), 400)
        self.assertLess(max(image.shape[:2]), 3000)
        self.assertGreater(image[..., :3].std(), 0.05)

    @parameterized.parameters(({}, "no documents"), ({"0": 0.5}, "Got numbers"))
    def test_errors(self, gold, message):
        for function in (plots.confusion_matrix, plots.calibration):
            with self.assertRaisesRegex(ValueError, message):
                function({}, gold)

    def test_both(self):
        """Plots go beside the metrics; numbers have none."""
        prefix = os.path.join(self.get_temp_dir(), "metrics")
        paths = plots.write_plots(prefix, _predictions("ab"), _gold("aa"))
        self.assertEqual(
            [f"{prefix}_confusion.png", f"{prefix}_calibration.png"], paths
        )
        for path in paths:
            self.assertGreater(matplotlib.image.imread(path).size, 0)
        self.assertEqual([], plots.write_plots(prefix, {}, {"0": 0.5}))


if __name__ == "__main__":
    tf.test.main()
