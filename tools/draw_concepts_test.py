import pathlib
import tempfile
import unittest

from tools import draw_concepts
from tools.modules import ROOT

# A radius of 2, and nine words.
_BAND = """111000000 111100000 111110000 011111000 001111100 000111110
000011111 000001111 000000111"""


def rows(matrix):
    return " ".join("".join(str(int(x)) for x in row) for row in matrix)


class DrawConceptsTest(unittest.TestCase):
    def test_masks_of_one_text(self):
        made = draw_concepts.make_side_inputs(use_hard_g2l_mask=True)
        found = draw_concepts.pieces(made, "att_mask")
        self.assertEqual("11 11", rows(found["global to global"]))
        self.assertEqual("111110000 000001111", rows(found["global to long"]))
        self.assertEqual(" ".join(["11"] * 9), rows(found["long to global"]))
        self.assertEqual(_BAND.split(), rows(found["long to long"]).split())

    def test_labels(self):
        made = draw_concepts.make_side_inputs()
        found = draw_concepts.pieces(made, "relative_att_ids")
        texts = [
            [draw_concepts.label_text(x) for x in found[name][i]]
            for name, i in (
                ("global to global", 1),
                ("long to global", 0),
                ("long to long", 4),
            )
        ]
        self.assertEqual(["−1", "0"], texts[0])
        self.assertEqual(["own", "other"], texts[1])
        self.assertEqual(["−2", "−1", "0", "+1", "+2"], texts[2][2:7])

    def test_the_pages_show_all_figures(self):
        page = (ROOT / "docs/concepts.md").read_text("utf-8")
        page += (ROOT / "README.md").read_text("utf-8")
        with tempfile.TemporaryDirectory() as folder:
            for path in draw_concepts.main(pathlib.Path(folder)):
                self.assertGreater(path.stat().st_size, 1000)
                self.assertIn(f"images/{path.name})", page)
                kept = ROOT / draw_concepts.IMAGES / path.name
                self.assertTrue(kept.exists(), f"{kept}: see draw_concepts.py")


if __name__ == "__main__":
    unittest.main()
