import os
import tempfile

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.estimators.explanations import Explanation
from testing import attention_maps


class ExplanationTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.found = Explanation(attention_maps.make_map())

    def test_names_and_probabilities(self):
        self.assertEqual(["query 0", "<b>", "jan"], self.found.tokens)
        self.assertEqual(
            {"All layers": ["average"], "Layer 1": ["average", "1", "2"]},
            self.found.layers,
        )
        self.assertAllClose(
            {0: 0.75, 2: 0.25}, self.found.reads(1, "Layer 1", head="2")
        )
        self.assertEqual(
            "Explanation('toy: <i>1</i>', 3 tokens, 2 layers)",
            repr(self.found),
        )
        for arguments, message in (
            ((1, "Layer 9"), "`layer` is 'Layer 9'. .*: All layers, Layer 1"),
            ((1, "Layer 1", "9"), "no head '9'"),
            ((3,), "no row for the node 3"),
        ):
            with self.assertRaisesRegex(UserError, message):
                self.found.reads(*arguments)

    def test_files(self):
        folder = tempfile.mkdtemp()
        for name, start in (("map.html", b"<!DOCTYPE"), ("a.png", b"\x89PNG")):
            path = os.path.join(folder, name)
            self.found.save(path)
            # A second call replaces the file.
            self.found.save(path, token=None)
            with open(path, "rb") as stream:
                self.assertStartsWith(stream.read(20), start)
        with self.assertRaisesRegex(UserError, "`path=.*`: .* ends in .png"):
            self.found.save(os.path.join(folder, "map.gif"))
        with self.assertRaisesRegex(UserError, "`token=9`"):
            self.found.save(path, token=9)
        other = os.path.join(folder, "mine.html")
        with open(other, "w", encoding="utf-8") as stream:
            stream.write("<p>mine</p>")
        with self.assertRaisesRegex(UserError, "exists and is not a page"):
            self.found.save(other)


if __name__ == "__main__":
    tf.test.main()
