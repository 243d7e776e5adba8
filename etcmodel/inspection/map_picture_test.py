import os
import tempfile
import unittest

import numpy as np
from matplotlib import image

from etcmodel.inspection import map_picture
from etcmodel.inspection.attention_map import Block
from etcmodel.inspection.surface_text import Token
from testing import attention_maps

_CHOSEN = np.array([29, 95, 168]) / 255


class DrawMapTest(unittest.TestCase):
    def draw(self, attention_map, node=None):
        path = os.path.join(tempfile.mkdtemp(), "map.png")
        map_picture.draw_map(attention_map, path, node)
        return image.imread(path)[..., :3]

    def test_chosen_token(self):
        """The chosen token is filled, at its place in the text."""
        places = []
        for node in (0, 1, 2):
            picture = self.draw(attention_maps.make_map(), node)
            is_chosen = np.all(abs(picture - _CHOSEN) < 0.02, axis=2)
            self.assertGreater(is_chosen.sum(), 100)
            places.append(np.flatnonzero(is_chosen.any(axis=0))[0])
        # The global token is in the margin; "<b>" is to the left of "jan".
        self.assertEqual(sorted(places), places)

    def test_paragraphs_of_a_long_text(self):
        """Draws paragraphs with the most attention; counts the omitted ones."""
        number = map_picture.MAX_LINES + 5
        found = attention_maps.make_map(
            tokens=[Token("a$b", "a", " ")] * number,
            blocks=[Block(i, i + 1) for i in range(number)],
            layers=[
                attention_maps.LayerScores(
                    "Layer 1",
                    {
                        "average": attention_maps.sparse(
                            *[{number: 0.5, number - 1: 0.25}] * (number + 1)
                        )
                    },
                )
            ],
            marks=(),
            rows=None,
        )
        drawing = map_picture._Drawing(found, 3)
        kept = drawing._choose([1] * number)
        self.assertEqual(map_picture.MAX_LINES, kept.sum())
        self.assertTrue(kept[[0, 2, number - 2, number - 1]].all())
        self.assertFalse(kept[map_picture.MAX_LINES : number - 2].any())
        height, width, _ = self.draw(found, 3).shape
        self.assertLess(height, 3 * width)

    def test_wrong_tokens(self):
        found = attention_maps.make_map(rows=[1])
        with self.assertRaisesRegex(ValueError, "`token=9`: .* at most 2"):
            self.draw(found, 9)
        with self.assertRaisesRegex(ValueError, "no row for the node 2"):
            self.draw(found, 2)


if __name__ == "__main__":
    unittest.main()
