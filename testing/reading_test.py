import tensorflow as tf

from etcmodel.datasets import narrativeqa
from etcmodel.datasets import triviaqa
from testing import reading


class ReadingTestingTest(tf.test.TestCase):
    def test_the_answer_is_once_in_the_text(self):
        for write, dataset in (
            (reading.write_small_triviaqa, triviaqa),
            (reading.write_small_narrativeqa, narrativeqa),
        ):
            path, vocab = write(self.get_temp_dir(), 7)
            records = list(dataset.FORMAT.read(path))
            self.assertLen(records, 7)
            with open(vocab) as stream:
                words = stream.read().split()
            for record in records:
                answer = record.answers[0]
                self.assertEqual(1, record.text.count(answer))
                self.assertIn(answer.lower(), words)
            self.assertGreater(len({len(x.text) for x in records}), 2)


if __name__ == "__main__":
    tf.test.main()
