import json

import tensorflow as tf

from testing import tasks


class SmallRecordsTest(tf.test.TestCase):
    """The generated records are such that their answers can be learned."""

    def _records(self, task):
        path, _ = tasks.SMALL_RECORDS[task][0](self.get_temp_dir(), 12)
        with open(path, encoding="utf-8") as stream:
            # An array, or one record a line.
            first, *others = map(json.loads, stream.read().splitlines())
        return first if isinstance(first, list) else [first, *others]

    def test_wikihop(self):
        for record in self._records("wikihop"):
            text = " ".join(record["supports"])
            named = [x for x in record["candidates"] if x in text]
            self.assertEqual([record["answer"]], named)

    def test_hotpotqa(self):
        for record in self._records("hotpotqa"):
            sentences = dict(record["context"])["Jan"]
            if record["answer"] not in ("yes", "no"):
                found = [record["answer"] in x for x in sentences]
                self.assertEqual([False, True], found)

    def test_nq(self):
        for number, record in enumerate(self._records("nq")):
            words = [x["token"] for x in record["document_tokens"]]
            (answer,) = record["annotations"]
            long = words[slice(*answer["long_answer"].values())]
            self.assertEqual(number % 4 != 2, "jan" in long)
            for span in answer["short_answers"]:
                (city,) = words[slice(*span.values())]
                expected = f"<P> jan lives in {city} . </P>"
                self.assertEqual(expected.split(), long)


if __name__ == "__main__":
    tf.test.main()
