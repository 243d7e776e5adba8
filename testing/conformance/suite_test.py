import pathlib
import unittest

import tensorflow as tf

from testing.conformance import cases
from testing.conformance import suite


def _make():
    case = cases.Case(
        tf.keras.layers.Dense,
        dict(units=2),
        dict(inputs=cases.floats("batch", 3)),
        (("batch", 2),),
    )
    return suite.Suite(__name__, {"dense": case})


class SuiteTest(unittest.TestCase):
    def test_model_of_two_layers_with_weights_of_their_own(self):
        prepared = _make()["dense"]
        first, second = prepared.layers_of(prepared.model)
        self.assertNotEqual(first.name, second.name)
        self.assertNotEqual(
            first.get_weights()[0].tolist(), second.get_weights()[0].tolist()
        )
        self.assertEqual(4, len(prepared.initial_weights))

    def test_says_of_each_file_that_it_cannot_be_read(self):
        results = _make().read(pathlib.Path("/nothing"), ["dense"])
        self.assertEqual(
            {("dense", x) for x in ("checkpoint", "keras", "weights")},
            set(results),
        )
        for text in results.values():
            self.assertIn("Traceback", text)


if __name__ == "__main__":
    unittest.main()
