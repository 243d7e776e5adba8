import tensorflow as tf

from etcmodel.datasets import classification
from etcmodel.datasets import question_answering
from etcmodel.datasets import selection
from etcmodel.datasets.question_answering.places import Place
from testing import own_documents


class OwnDocumentsTest(tf.test.TestCase):
    """What is right can be learned, and follows from the text."""

    def _read(self, write, dataset):
        path, vocab = write(self.get_temp_dir(), 12)
        with open(vocab) as stream:
            words = stream.read().split()
        records = list(dataset.FORMAT.read(path))
        self.assertLen(records, 12)
        for record in records:
            for paragraph in record.paragraphs:
                for text in paragraph:
                    for word in text.lower().replace(".", " .").split():
                        self.assertIn(word, words)
        return records

    def test_labels(self):
        records = self._read(own_documents.write_small_labels, classification)
        for record in records:
            self.assertIn(f"He is in {record.label}.", record.paragraphs[0][0])
        self.assertEqual(
            ("Bonn", "Oslo", "Rome"), classification.find_labels(records).names
        )

    def test_selections(self):
        records = self._read(own_documents.write_small_selections, selection)
        for i, record in enumerate(records):
            found = [record.paragraphs[i][j] for i, j in record.selected]
            self.assertLen(found, int(i % 4 != 3))
            self.assertEqual(bool(found), "He is in" in str(record.paragraphs))
            for text in found:
                self.assertStartsWith(text, "He is in")

    def test_answers(self):
        records = self._read(
            own_documents.write_small_answers, question_answering
        )
        for i, record in enumerate(records):
            self.assertEqual(
                "none" if i % 4 == 3 else "span", record.answer_type
            )
            self.assertEqual(0, sum(record.counts.values()))
            text = record.paragraphs[0][0]
            for answer in record.answers:
                # Behind "Jan is here. He is in ".
                place = Place(0, 0, 22, 26)
                self.assertEqual(place, answer.place)
                self.assertEqual(text[22:26], answer.text)
            self.assertEqual(i % 4 == 0, record.evidence is not None)


if __name__ == "__main__":
    tf.test.main()
