import tensorflow as tf

from etcmodel.engine import plain_texts
from etcmodel.tasks.answer.preprocessor import AnswerPreprocessor


class PlainTextsTest(tf.test.TestCase):
    def test_raw_inputs_of_a_text(self):
        """Blank lines separate paragraphs, and "# " begins a title."""
        request = {"query": "Who?", "text": "# Brno\nJan lives there.\n\nYes."}
        self.assertEqual(
            {
                "query": ["Who?"],
                "titles": ["Brno", ""],
                "texts": [["Jan lives there."], ["Yes."]],
            },
            plain_texts.read_raw(AnswerPreprocessor, request),
        )


if __name__ == "__main__":
    tf.test.main()
