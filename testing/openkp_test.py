import json

import numpy as np
import tensorflow as tf

from etcmodel.datasets import openkp
from testing import openkp as openkp_lib


class PagesTest(tf.test.TestCase):
    def test_keyphrases_are_the_headings(self):
        """Mostly; and other short nodes are as many words."""
        path, _ = openkp_lib.write_small_openkp(self.get_temp_dir(), 200)
        with open(path) as stream:
            pages = [json.loads(line) for line in stream]
        headings, absent, repeated, words = 0, 0, 0, {0: [], 1: []}
        numbers, features = set(), []
        column = openkp.FEATURES.index("is_heading")
        for page in pages:
            phrases = [" ".join(x).lower() for x in page["KeyPhrases"]]
            numbers.add(len(phrases))
            found = []
            for node in json.loads(page["VDOM"]):
                features.append(node["feature"])
                is_heading = int(node["feature"][column])
                length = len(node["text"].split())
                if length <= 3:
                    words[is_heading].append(length)
                if is_heading:
                    text = node["text"].lower()
                    found.append(text)
                    repeated += page["text"].lower().count(text) > 1
            self.assertContainsSubset(found, phrases)
            headings += len(found)
            absent += len(phrases) - len(found)
        self.assertEqual({1, 2, 3}, numbers)
        # All 20 of them tell nodes apart.
        self.assertEqual((20,), np.std(features, axis=0).nonzero()[0].shape)
        self.assertBetween(absent, 3, 20)
        self.assertBetween(repeated, headings // 10, headings // 2)
        self.assertAllClose(np.mean(words[0]), np.mean(words[1]), atol=0.2)

    def test_other_headings(self):
        """They look like keyphrases, and are none."""
        others = ("1 2", "3", "4")
        for seed in range(20):
            page = openkp_lib.make_page(seed, other_headings=others)
            headings = {
                node["text"].lower()
                for node in json.loads(page["VDOM"])
                if node["feature"][openkp.FEATURES.index("is_heading")]
            }
            self.assertLen(headings.intersection(others), 2)
            phrases = " ".join(sum(page["KeyPhrases"], []))
            self.assertNotRegex(phrases, r"\d")

    def test_they_can_be_read(self):
        path, _ = openkp_lib.write_small_openkp(self.get_temp_dir(), 20, 7)
        records = list(openkp.FORMAT.read(path))
        self.assertLen(records, 20)
        # Another seed, another page.
        self.assertLen({x.words for x in records}, 20)


if __name__ == "__main__":
    tf.test.main()
