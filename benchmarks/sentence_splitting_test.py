"""Tests of the measurement of sentence boundaries."""

import os

import tensorflow as tf

from benchmarks import sentence_splitting


class SentenceSplittingTest(tf.test.TestCase):
    def test_score(self):
        """Of three marked boundaries one is not found; one is found too much.

        White space does not count.
        """
        passages = [
            ["He ran.", " She left.", "\n\nI am here.", " You, too."],
            ["One, He said. no"],
            ["Yes. Al Bo. went"],
        ]
        self.assertEqual(
            {6, 14, 22}, sentence_splitting.boundaries(passages[0])
        )
        passages[0][1] = " she left."
        found = sentence_splitting.score("en", "marked", passages)
        self.assertEqual(3, found["boundaries"])
        self.assertAlmostEqual(2 / 3, found["precision"])
        self.assertAlmostEqual(2 / 3, found["recall"])

    def test_lines(self):
        """Lines 28, 77 and 86 are damaged, 107 goes on; 200 ends are enough."""
        folder = self.get_temp_dir()
        with open(os.path.join(folder, "es.txt"), "w") as file:
            file.write("\ufeff" + "\n\n".join(map(str, range(240))))
        found = sentence_splitting.read_lines(folder, "es")
        self.assertEqual([f" {i}" for i in range(29)], found[0])
        self.assertEqual([" 29", " 77"], [found[1][0], found[1][-1]])
        self.assertEqual([" 106", " 107 108", " 109"], found[3][19:22])
        self.assertEqual(200, sum(len(passage) - 1 for passage in found))

    def test_marked(self):
        """Every language of the texts, and lists."""
        found = sentence_splitting.read_marked()
        self.assertContainsSubset({"ar", "de", "th", "zh", "lists"}, found)
        self.assertIn(
            ["Shopping:", "\n- milk", "\n- two eggs", "\n- bread and butter"],
            found["lists"],
        )


if __name__ == "__main__":
    tf.test.main()
