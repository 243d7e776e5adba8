import pathlib
import unittest

from tools import write_architecture

ROOT = pathlib.Path(__file__).resolve().parents[1]


class ArchitectureTest(unittest.TestCase):
    def test_list_matches_the_imports(self):
        """The list in architecture.md is up to date."""
        page = (ROOT / write_architecture.PAGE).read_text("utf-8")
        self.assertEqual(
            page,
            write_architecture.with_listing(page),
            "Run: python -m tools.write_architecture",
        )
        arrows = write_architecture.arrows()
        self.assertIn(("models", "layers"), arrows)
        # `training` imports `layers`, but also reaches it through `models`.
        self.assertNotIn(("training", "layers"), arrows)


if __name__ == "__main__":
    unittest.main()
