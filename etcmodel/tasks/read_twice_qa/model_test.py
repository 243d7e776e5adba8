"""Tests of the model: answers for given logits, losses, gradients."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.pipeline import spec
from etcmodel.serving.saved_model import model_variables
from etcmodel.tasks.read_twice_qa import model as model_lib
from etcmodel.tasks.read_twice_qa import task
from testing import small_read_twice

_NONE = -2e6


def make_model(model_class=model_lib.ReadTwiceQA, **options):
    return model_class(spec.ReadTwiceModelOptions(), task.Options(**options))


def choose(scores, starts, ends, **more):
    return {
        "span_scores": tf.constant(scores, tf.float32),
        "span_bytes": tf.stack(
            [tf.constant(x, tf.int32) for x in (starts, ends)], axis=2
        ),
        **{name: tf.constant(x, tf.float32) for name, x in more.items()},
    }


class AnswerTest(tf.test.TestCase, parameterized.TestCase):
    # "Jan" occurs twice, in different case, and "Brno" once.
    text = "Jan. Brno, JAN é"
    chosen = choose(
        [[1.0, 0.5], [0.7, _NONE], [_NONE, _NONE]],
        [[5, 0], [11, -1], [-1, -1]],
        [[9, 3], [15, -1], [-1, -1]],
    )

    @parameterized.parameters(("max", b"Brno", 5, 9), ("sum", b"JAN ", 11, 15))
    def test_equal_texts(self, combine, answer, start, end):
        """With "sum", equal texts together beat the best single span."""
        found = make_model(combine=combine).decode(
            self.chosen,
            tf.constant([0, 0, 1]),
            {"document": tf.constant([self.text, "nothing"])},
        )
        self.assertAllEqual([answer, b""], found["answer"])
        self.assertAllEqual([start, -1], found["answer_start"])
        self.assertAllEqual([end, -1], found["answer_end"])
        total = math.exp(1) + math.exp(0.5) + math.exp(0.7)
        best = math.exp(1) if combine == "max" else total - math.exp(1)
        self.assertAllClose([best / total, 0], found["answer_score"])

    def test_a_part_of_a_document(self):
        """The part begins at byte 5; answers have positions in the document."""
        found = make_model().decode(
            {name: x[:1] for name, x in self.chosen.items()},
            tf.constant([0]),
            {
                "document": tf.constant([self.text[5:]]),
                "document_start": tf.constant([5]),
            },
        )
        self.assertAllEqual([b"Brno"], found["answer"])
        self.assertAllEqual([5], found["answer_start"])

    def test_texts_without_words(self):
        """Texts that consist of punctuation are compared unchanged."""
        found = make_model(combine="sum").decode(
            choose([[1.0, 0.7, 0.7, 0.7]], [[2, 0, 6, 8]], [[5, 1, 7, 9]]),
            tf.constant([0]),
            {"document": tf.constant(["? Jan ! ?"])},
        )
        self.assertAllEqual([b"?"], found["answer"])
        rest = 2 * math.exp(0.7)
        self.assertAllClose(
            [rest / (rest + math.exp(1) + math.exp(0.7))],
            found["answer_score"],
        )

    def test_places_in_two_segments_count_once(self):
        # Spans with different ends are different places.
        found = make_model(combine="sum").decode(
            choose(
                [[1.0, 0.9, 0.5], [0.8, 0.9, _NONE]],
                [[5, 0, 0], [0, 0, -1]],
                [[9, 3, 9], [3, 3, -1]],
            ),
            tf.constant([0, 0]),
            {"document": tf.constant([self.text])},
        )
        self.assertAllEqual([b"Brno"], found["answer"])
        self.assertAllClose(
            [math.exp(1) / (math.exp(1) + math.exp(0.9) + math.exp(0.5))],
            found["answer_score"],
        )

    def test_documents_without_segments(self):
        found = make_model().decode(
            {name: x[:0] for name, x in self.chosen.items()},
            tf.zeros([0], tf.int32),
            {"document": tf.constant(["", "a"])},
        )
        self.assertAllEqual([b"", b""], found["answer"])
        self.assertAllEqual([-1, -1], found["answer_start"])
        self.assertAllEqual([0, 0], found["answer_score"])

    def test_options(self):
        """The answer type is the most probable option of all segments."""
        model = make_model(model_lib.HotpotQA)
        for logits, option, answer, start in (
            ([[2.0, 0.0, 1.0], [0.0, 1.9, 0.0]], 0, b"Brno", 5),
            ([[2.0, 0.0, 1.0], [0.0, 2.5, 0.0]], 1, b"yes", -1),
            ([[2.0, 0.0, 2.2], [0.0, 2.1, 0.0]], 2, b"no", -1),
        ):
            found = model.decode(
                {
                    **{name: x[:2] for name, x in self.chosen.items()},
                    "option_logits": tf.constant(logits),
                },
                tf.constant([0, 0]),
                {"document": tf.constant([self.text])},
            )
            self.assertAllEqual([option], found["answer_type"])
            self.assertAllEqual([answer], found["answer"])
            self.assertAllEqual([start], found["answer_start"])
            if option:
                exps = np.exp(logits)
                self.assertAllClose(
                    [exps.max() / exps.sum()], found["answer_score"]
                )

    def test_document_without_a_span(self):
        """Without a span, the answer is empty, yes or no."""
        found = make_model(model_lib.HotpotQA).decode(
            choose(
                [[_NONE], [_NONE]],
                [[-1], [-1]],
                [[-1], [-1]],
                option_logits=[[2.0, 0.0, 1.0], [0.0, 2.0, 0.0]],
            ),
            tf.constant([0, 1]),
            {"document": tf.constant(["", ""])},
        )
        self.assertAllEqual([3, 1], found["answer_type"])
        self.assertAllEqual([b"", b"yes"], found["answer"])
        self.assertAllEqual([-1, -1], found["answer_start"])

    def test_choose_by_hand(self):
        logits = np.full([1, 4, 2], -1e6, np.float32)
        logits[0, 1:] = [[3, 0], [0, 2], [1, 5]]
        context = {
            "token_starts": tf.constant([[-1, 10, 14, 20]]),
            "token_ends": tf.constant([[-1, 13, 18, 21]]),
            "word_cuts": tf.constant([[0, 0, 0, 0]]),
        }
        chosen = make_model(
            decode_max_size=2, decode_top_k=2
        ).select_candidates({"span_logits": tf.constant(logits)}, {}, context)
        # The best spans are the third token and the first two tokens; three
        # tokens would be too many.
        self.assertAllClose([[6, 5]], chosen["span_scores"])
        self.assertAllEqual([[[20, 21], [10, 18]]], chosen["span_bytes"])

    def test_choose_whole_words(self):
        """Spans that cut words have lower scores than spans of whole words."""
        logits = np.full([2, 3, 2], -1e6, np.float32)
        logits[:, 1:] = [[3, 4], [2, 5]]
        chosen = make_model(
            decode_max_size=2, decode_top_k=2
        ).select_candidates(
            {"span_logits": tf.constant(logits)},
            {},
            {
                "token_starts": tf.constant([[-1, 10, 14], [-1, 10, 14]]),
                "token_ends": tf.constant([[-1, 14, 18], [-1, 14, 18]]),
                # In the first segment, a word has two tokens. In the second,
                # the end of the segment cuts the word.
                "word_cuts": tf.constant([[0, 2, 1], [0, 2, 3]]),
            },
        )
        self.assertAllClose([8, 8 - 1e4], chosen["span_scores"][:, 0])
        self.assertAllEqual([[10, 18]] * 2, chosen["span_bytes"][:, 0])
        self.assertAllGreater(chosen["span_scores"], -5e5)

    def test_prediction_and_impossible_options(self):
        self.assertEqual(
            "é", make_model().to_prediction({"answer": "é".encode()}, None)
        )
        for options, message in (
            ({"combine": "mean"}, "combine is 'mean'"),
            ({"decode_top_k": 0}, "decode_top_k is 0"),
            ({"decode_max_size": 0}, "decode_max_size is 0"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                make_model(**options)


class ModelTest(tf.test.TestCase):
    def _make(self, model_class):
        config = small_read_twice.make_config(**small_read_twice.PAPER)
        task_model = make_model(model_class)
        model = task_model.build(config)
        rng = np.random.default_rng(0)
        model.set_weights(
            [w + 0.4 * rng.normal(size=w.shape) for w in model.get_weights()]
        )
        batch = small_read_twice.make_batch()
        blocks = len(batch["token_ids"])
        inputs = {
            name: tf.constant(batch[name], tf.int32)
            for name in model.input
            if name != "prefix_length"
        }
        inputs["prefix_length"] = tf.fill([blocks], 2)
        return task_model, model, inputs

    def test_losses_and_gradients(self):
        """The loss of each segment is the loss of its document."""
        task_model, model, inputs = self._make(model_lib.HotpotQA)
        ids = inputs["block_ids"].numpy()
        numbers = np.array([(ids == x).sum() if x else 0 for x in ids])
        shape = [len(ids), 2]
        labels = {
            "block_ids": inputs["block_ids"],
            "num_blocks": tf.constant(numbers, tf.int32),
            "answer_begins": tf.fill(shape, 3),
            "answer_ends": tf.fill(shape, 4),
            "answer_labels": tf.ones(shape, tf.int32),
            "option": tf.ones([len(ids)], tf.int32),
            "is_supporting": tf.ones([len(ids)], tf.int32),
        }
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            losses = task_model.losses(outputs, labels)
            loss = tf.add_n([tf.reduce_sum(x) for x in losses.values()])
        self.assertEqual({*task_model.loss_names()}, {*losses})
        logits = outputs["span_logits"].numpy().astype(np.float64)
        # Tokens of the question are masked.
        self.assertAllInRange(logits[:, :2], -1e6, -1e6)
        expected = np.zeros([len(ids)])
        for i, block_id in enumerate(ids):
            if block_id:
                rows = np.flatnonzero(ids == block_id)
                for kind, position in ((0, 3), (1, 4)):
                    exps = np.exp(logits[rows, :, kind])
                    expected[i] -= np.log(exps[:, position].sum() / exps.sum())
        self.assertAllClose(expected, losses["span"], 1e-4, 1e-4)
        variables = [v for v in model_variables(model) if v.trainable]
        for variable, gradient in zip(
            variables, tape.gradient(loss, variables), strict=True
        ):
            self.assertIsNotNone(gradient, variable.name)


if __name__ == "__main__":
    tf.test.main()
