import json
import re
import tempfile
import unittest

from testing import pretraining


class PretrainingTestingTest(unittest.TestCase):
    def test_documents(self):
        """Each segment names the document's entity once."""
        length = pretraining.SEGMENT_LENGTH - 1
        with tempfile.TemporaryDirectory() as folder:
            path, _ = pretraining.write_small_documents(folder, 5)
            with open(path, encoding="utf-8") as stream:
                records = [json.loads(line) for line in stream]
        self.assertEqual(5, len(records))
        for record in records:
            words = record["text"].split()
            for start in range(0, len(words), length):
                part = words[start : start + length]
                self.assertEqual(1, sum(x[0] == "e" for x in part))
            for x in record["mentions"]:
                name = record["text"][x["start"] : x["end"]]
                self.assertEqual(x["entity"], name)

    def test_texts(self):
        """Each sentence names the text's entity once."""
        with tempfile.TemporaryDirectory() as folder:
            path, _ = pretraining.write_small_texts(folder, 5)
            with open(path, encoding="utf-8") as stream:
                texts = stream.read().strip().split("\n\n")
        self.assertEqual(5, len(texts))
        for text in texts:
            names = [re.findall(r"e\d+", x) for x in text.split("\n")]
            self.assertEqual([names[0]] * 7, names)
            self.assertEqual(1, len(names[0]))


if __name__ == "__main__":
    unittest.main()
