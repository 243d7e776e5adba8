import math
import types

import numpy as np
import tensorflow as tf

from etcmodel.tasks.documents import document_units

# Three paragraphs: a title and two sentences; no units; two sentences.
_UNITS = ["T", "a b.", "Ü.", "d.", "e."]
_PARAGRAPHS = [0, 0, 0, 2, 2]
_NUMBERS = [-1, 0, 1, 0, 1]


class DescribeUnitsTest(tf.test.TestCase):
    def test_empty_paragraphs_count(self):
        def ragged(values, dtype):
            return tf.ragged.constant(values, dtype, 2)

        text = document_units.describe_units(
            ragged([[_UNITS[:3], [], _UNITS[3:]], [], [["f"]]], tf.string),
            ragged([[_NUMBERS[:3], [], _NUMBERS[3:]], [], [[0]]], tf.int32),
        )
        expected = {
            "units": [[x.encode() for x in _UNITS], [], [b"f"]],
            "unit_paragraphs": [_PARAGRAPHS, [], [0]],
            "unit_numbers": [_NUMBERS, [], [0]],
        }
        self.assertEqual(expected, {x: y.to_list() for x, y in text.items()})

    def test_list_units(self):
        text = {
            "units": [x.encode() for x in _UNITS],
            "unit_paragraphs": np.array(_PARAGRAPHS),
            "unit_numbers": np.array(_NUMBERS),
        }
        listed = document_units.list_units(text)
        self.assertEqual(
            [(0, -1, "T"), (0, 1, "Ü."), (2, 1, "e.")],
            [(*x[:2], x.content) for x in listed[::2]],
        )


class LabelGlobalsTest(tf.test.TestCase):
    def test_by_hand(self):
        """The input has a CLS, a query and a document without its last unit."""
        sources = [(0, 0, 0, -1), (1, 0, 0, 0)]
        sources += [(2, 0, unit, -1) for unit in (-1, 0, 1, 2)]
        sources += [(2, 2, -1, -1), (2, 2, 0, -1), (-1, -1, -1, -1)]
        view = types.SimpleNamespace(
            text={
                "unit_paragraphs": np.array(_PARAGRAPHS),
                "unit_numbers": np.array(_NUMBERS),
            },
            global_sources=np.array([sources]),
            features={
                "global_units": np.array([[-1, -1, -1, 0, 1, 2, -1, 3, -1]])
            },
        )
        for right, of_units, kept in (
            ([], [0, 0, 0, 0, 0, 0], 0),
            # The paragraph and its title are also labelled 1.
            ([2], [1, 1, 0, 1, 0, 0], 1),
            ([1, 3], [1, 1, 1, 0, 1, 1], 2),
            # The unit was cut, but its paragraph was not.
            ([4], [0, 0, 0, 0, 1, 0], 0),
        ):
            self.assertEqual(
                ([-1, -1, *of_units, -1], kept),
                document_units.label_globals(view, 2, right),
            )


class UnitLossesTest(tf.test.TestCase):
    def test_by_hand(self):
        """The probabilities are 1/2 and 3/4; the label -1 has no loss."""
        log3 = math.log(3)
        losses = document_units.unit_losses(
            tf.constant([[0.0, log3, log3, 9.0], [5.0, -5.0, 0.0, 1.0]]),
            tf.constant([[1, 0, 1, -1], [-1] * 4]),
        )
        expected = math.log(2) + math.log(4) + math.log(4 / 3)
        self.assertAllClose([expected, 0.0], losses)


class DecodeUnitsTest(tf.test.TestCase):
    def _decode(self, number):
        text = {
            "units": tf.ragged.constant([_UNITS, ["f"]][:number], tf.string, 1),
            "unit_paragraphs": tf.ragged.constant([_PARAGRAPHS, [1]][:number]),
            "unit_numbers": tf.ragged.constant([_NUMBERS, [2]][:number]),
        }
        return document_units.decode_units(
            # The second token belongs to the title; "Ü." and "e." were cut.
            tf.constant([[-1, 0, 1, 3, -1], [-1, -1, 0, -1, -1]][:number]),
            tf.constant(
                [[0.9, 0.8, 0.7, 0.4, -1.0], [-1.0, 0.1, 0.2, 0.3, 0.4]][
                    :number
                ]
            ),
            text,
        )

    def test_by_hand(self):
        made = self._decode(2)
        self.assertAllEqual(
            [
                [b"a b.", "Ü.".encode(), b"d.", b"e."],
                [b"f", b"", b"", b""],
            ],
            made["units"],
        )
        for name, expected in (
            ("unit_probabilities", [[0.7, 0.0, 0.4, 0.0], [0.2, 0, 0, 0]]),
            ("unit_paragraphs", [[0, 0, 2, 2], [1, -1, -1, -1]]),
            ("unit_numbers", [[0, 1, 0, 1], [2, -1, -1, -1]]),
        ):
            self.assertAllClose(expected, made[name])

    def test_predictions_of_a_record(self):
        """Omits padding; selects a unit whose probability is the threshold."""
        second = {x: y.numpy()[1] for x, y in self._decode(2).items()}
        (unit,) = document_units.to_unit_predictions(second, 0.25)
        self.assertEqual((1, 2, False, "f"), (*unit[:2], *unit[3:]))
        self.assertAlmostEqual(0.2, unit.score, places=6)
        first = {x: y.numpy()[0] for x, y in self._decode(1).items()}
        first["unit_probabilities"][2] = 0.5
        units = document_units.to_unit_predictions(first, 0.5)
        self.assertEqual(
            [("a b.", True), ("Ü.", False), ("d.", True), ("e.", False)],
            [(x.content, x.is_selected) for x in units],
        )


if __name__ == "__main__":
    tf.test.main()
