from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import EtcConfig
from etcmodel.models import EtcModel
from etcmodel.tasks.openkp import model as model_lib
from etcmodel.tasks.openkp import ngrams
from etcmodel.tasks.openkp.task import TASK


def _log_softmax(values):
    values = np.asarray(values, np.float64)
    return values - np.log(np.exp(values).sum())


class JoinOccurrencesTest(tf.test.TestCase):
    def test_worked_example(self):
        """Joins phrases of up to two words in "a b a" and "b b"."""
        logits = tf.constant(
            [
                [[1.0, 2.0, 3.0], [4.0, 5.0, -10000.0]],
                [[6.0, 7.0, -10000.0], [8.0, -10000.0, -10000.0]],
            ]
        )
        first = np.zeros([2, 3, 5], np.int32)
        first[0, 2, 0] = 2
        first[1, 1, 0] = 1
        self.assertAllEqual(
            [
                [[3.0, 2.0, -10000.0], [4.0, 5.0, -10000.0]],
                [[7.0, -10000.0, -10000.0], [8.0, -10000.0, -10000.0]],
            ],
            model_lib.join_occurrences(logits, tf.constant(first)),
        )


class LossTest(tf.test.TestCase):
    # Logits of pages of three and two words, with phrases of up to two words.
    _LOGITS = (
        ((1.0, 2.0, 0.5), (3.0, -1.0, -10000.0)),
        ((0.0, 4.0, -10000.0), (1.0, -10000.0, -10000.0)),
    )
    _FLAT = ((1.0, 2.0, 0.5, 3.0, -1.0), (0.0, 4.0, 1.0))

    def _losses(self, starts, sizes, **options):
        task_model = TASK.make_model(options=TASK.options(**options))
        first = np.zeros([2, 3, 5], np.int32)
        # The first page's third word equals its first.
        first[0, 2, 0] = 2
        labels = {
            "label_starts": tf.constant(starts),
            "label_sizes": tf.constant(sizes),
            "first_occurrences": tf.constant(first),
        }
        outputs = {"ngram_logits": tf.constant(self._LOGITS)}
        return task_model.losses(outputs, labels)["cross_entropy"]

    def test_keyphrases_share_the_probability(self):
        one, other = map(_log_softmax, self._FLAT)
        self.assertAllClose(
            # The keyphrases are the first word and the first two words of one
            # page, and the last word of the other page.
            [-(one[0] + one[3]) / 2, -other[1]],
            self._losses(
                [[0, 0, -1], [1, -1, -1]],
                [[1, 2, -1], [1, -1, -1]],
                label_smoothing=0.0,
            ),
        )

    def test_smoothing(self):
        """Unlike in the original code, only phrases of the page get a share."""
        one, other = map(_log_softmax, self._FLAT)
        expected = []
        for log_probabilities, label in ((one, 3), (other, 1)):
            number = len(log_probabilities)
            target = np.full(number, 0.5 / number)
            target[label] += 1
            expected.append(-(target / 1.5 * log_probabilities).sum())
        self.assertAllClose(
            expected,
            self._losses([[0], [1]], [[2], [1]], label_smoothing=0.5),
        )

    def test_max_loss(self):
        """Uses the greatest logit of all occurrences of a phrase."""
        joined = _log_softmax([1.0, 2.0, 3.0, -1.0])
        other = _log_softmax(self._FLAT[1])
        self.assertAllClose(
            [-joined[0], -other[0]],
            self._losses(
                [[0], [0]], [[1], [1]], max_loss=True, label_smoothing=0.0
            ),
        )

    def test_occurrences_outside_of_the_row(self):
        """They would be phrases of another page."""
        logits = tf.zeros([2, 1, 3])
        for back in (-1, 2):
            first = np.zeros([2, 3, 1], np.int32)
            first[1, 1] = back
            with self.assertRaisesRegex(
                ValueError, f"first_occurrences is {back} in row 1"
            ):
                model_lib.join_occurrences(logits, tf.constant(first))

    def test_pages_without_a_keyphrase(self):
        self.assertAllEqual(
            [0.0, 0.0],
            self._losses([[-1, -1], [-1, -1]], [[-1, -1], [-1, -1]]),
        )


class TextsTest(tf.test.TestCase):
    def test_join_words(self):
        words = tf.ragged.constant([["a", "b", "c"], ["d"]])
        got = model_lib.join_words(
            words, tf.constant([[1, 0], [0, 0]]), tf.constant([[2, 0], [1, 0]])
        )
        self.assertAllEqual([[b"b c", b""], [b"d", b""]], got)

    def test_first_of_equals(self):
        texts = tf.constant([["b", "a", "b", "", "c"], [""] * 5])
        self.assertAllEqual(
            [[0, 1, 4, 5], [5, 5, 5, 5]], model_lib.first_of_equals(texts, 4)
        )


class AnswersTest(tf.test.TestCase, parameterized.TestCase):
    def _answers(self, logits, first_occurrences, words):
        task_model = TASK.make_model()
        chosen = task_model.select_candidates(
            {"ngram_logits": tf.constant(logits)},
            {},
            {"first_occurrences": first_occurrences},
        )
        return task_model.decode(
            chosen, tf.range(len(logits)), {"visible_words": words}
        )

    def test_best_phrases(self):
        """Merges the two occurrences of "b"; phrases have up to two words."""
        logits = np.full([2, 2, 6], -10000.0, np.float32)
        logits[0, 0] = [1, 2, 8, 7, -5, -4]
        logits[0, 1, :5] = [6, -3, 5.5, -2, -6]
        logits[1, 0, :2] = [1, 2]
        first = np.zeros([2, 6, 5], np.int32)
        first[0, 2, 0] = 2
        words = tf.ragged.constant([["B", "a", "b", "c", "d", "é"], ["x", "y"]])
        answers = self._answers(logits, tf.constant(first), words)
        self.assertAllEqual(
            [[b"B", b"c", b"B a", b"b c", b"a"], [b"y", b"x", b"", b"", b""]],
            answers["keyphrases"],
        )
        flat = logits[0][logits[0] > -9000]
        expected = np.exp([8, 7, 6, 5.5, 2]) / np.exp(flat).sum()
        self.assertAllClose(expected, answers["keyphrase_scores"][0])
        self.assertAllClose(
            [*np.exp(_log_softmax([2, 1])), 0, 0, 0],
            answers["keyphrase_scores"][1],
        )
        self.assertEqual(
            ["y", "x"],
            TASK.make_model().to_prediction(
                {"keyphrases": answers["keyphrases"][1].numpy()}, None
            ),
        )

    def test_phrases_across_nodes_are_merged_by_text(self):
        """Merges "a b" in one node with "A b" across two nodes."""
        words = tf.ragged.constant([["a", "b", "A", "b"]])
        nodes = tf.ragged.constant([[0, 0, 1, 2]])
        first = ngrams.first_occurrences(words, nodes).to_tensor()
        logits = np.full([1, 2, 4], 1.0, np.float32)
        # In float32, the probabilities of all other phrases are 0.
        logits[0, 1] = [120, -10, 121, -10000]
        answers = self._answers(logits, first, words)
        self.assertAllEqual(
            [[b"A b", b"a", b"b", b"b A", b""]], answers["keyphrases"]
        )
        self.assertAllClose(
            [[np.e / (1 + np.e), 0, 0, 0, 0]], answers["keyphrase_scores"]
        )

    @parameterized.parameters(0, 3)
    def test_empty_page(self, length):
        answers = self._answers(
            np.full([1, 5, length], -10000.0, np.float32),
            tf.zeros([1, length, 5], tf.int32),
            tf.ragged.constant([[]], tf.string),
        )
        self.assertAllEqual([[b""] * 5], answers["keyphrases"])
        self.assertAllEqual([[0.0] * 5], answers["keyphrase_scores"])

    @parameterized.product(in_global=[False, True], in_long=[False, True])
    def test_visual_embeddings_are_added_by_options(self, in_global, in_long):
        config = EtcConfig.from_preset(
            "tiny", vocab_size=20, num_hidden_layers=1
        )
        model = TASK.make_model(
            TASK.model_options(
                visual_in_global=in_global, visual_in_long=in_long
            )
        ).build(config, long_length=4, global_length=2)
        inputs = {
            name: tf.zeros([1, *x.shape[1:]], x.dtype)
            for name, x in model.input.items()
        }
        # The input has visual features even if they are not used.
        self.assertEqual([1, 2, 20], inputs["visual"].shape)
        encoder = model.get_layer("etc_encoder")
        with mock.patch.object(
            EtcModel, "call", side_effect=EtcModel.call, autospec=True
        ) as call:
            encoder.get_layer("etc_document_bert")(inputs)
        self.assertEqual(
            (in_global, in_long),
            tuple(
                f"{x}_embedding_adder" in call.call_args.kwargs
                for x in ("global", "long")
            ),
        )


if __name__ == "__main__":
    tf.test.main()
