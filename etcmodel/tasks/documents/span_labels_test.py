import numpy as np
import tensorflow as tf

from etcmodel.tasks.documents.span_labels import SpanFinder


class SpanFinderTest(tf.test.TestCase):
    def test_whole_words_of_the_unit(self):
        """The units are "New York, in" and "Oslo"; "York," is one word."""
        finder = SpanFinder(
            1,
            np.array(
                [
                    *[(0, 0, 0, 0), (1, 2, 0, 0), (1, 2, 0, 1), (1, 2, 0, 2)],
                    *[(1, 2, 0, 3), (1, 2, 1, 0), (-1, -1, -1, -1)],
                ]
            ),
            {
                "long_starts": np.array([-1, 0, 4, 8, 10, 0, -1]),
                "long_ends": np.array([-1, 3, 8, 9, 12, 4, -1]),
                "long_word_cuts": np.array([0, 0, 2, 1, 0, 0, 0]),
            },
        )
        for place, expected in (
            ((2, 0, 0, 3), (1, 1)),
            ((2, 0, 0, 8), (1, 3)),
            ((2, 0, 10, 12), (4, 4)),
            ((2, 1, 0, 4), (5, 5)),
            # The first span was cut; the second one lies between tokens.
            ((2, 2, 0, 4), None),
            ((2, 0, 9, 10), None),
        ):
            self.assertEqual(expected, finder.find(*place))


if __name__ == "__main__":
    tf.test.main()
