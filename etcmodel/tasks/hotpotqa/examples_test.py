"""Tests of HotpotQA's `examples`."""

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.hotpotqa.records import Paragraph
from etcmodel.feature_utils import etc_features
from etcmodel.tasks.hotpotqa import examples
from etcmodel.tasks.hotpotqa.features import HotpotQAContext
from etcmodel.tasks.hotpotqa.labels import HotpotQALabels


def _context():
    """Three records: one of all kinds, one of nothing, one without padding."""
    return HotpotQAContext(
        segments=tf.RaggedTensor.from_row_splits(
            ["\u00e9", "", "a\n b ", "x" * 300, "", "b"],
            tf.constant([0, 5, 5, 6], tf.int64),
        ),
        paragraph_sizes=tf.RaggedTensor.from_row_splits(
            tf.constant([2, 0, 3, 0, 0, 1], tf.int64),
            tf.constant([0, 4, 4, 6], tf.int64),
        ),
        global_segments=tf.constant(
            [[-1, -1, 0, 1, -1, 4, -1], [-1] * 7, [-1, 0, 0, 0, 0, 0, 0]]
        ),
        starts=tf.constant([[-1, 0, -1, 299, -1], [-1] * 5, [0, 0, 1, 1, 1]]),
        ends=tf.constant([[-1, 2, -1, 300, -1], [-1] * 5, [0, 1, 1, 1, 1]]),
    )


class ExamplesTest(tf.test.TestCase, parameterized.TestCase):
    def _assert_same(self, got, expected):
        self.assertEqual(got._fields, expected._fields)
        for name, value in expected._asdict().items():
            found = getattr(got, name)
            self.assertEqual(found.dtype, value.dtype, name)
            if isinstance(value, tf.RaggedTensor):
                self.assertEqual(found.to_list(), value.to_list(), name)
                self.assertEqual(found.row_splits.dtype, tf.int64, name)
            else:
                self.assertAllEqual(found, value, name)

    def _serialize(self, context, batch=3):
        return etc_features.serialize_batch(
            {"long_token_ids": tf.ones([batch, 5], tf.int32)},
            [
                examples.context_values(examples.on_host(context), i)
                for i in range(batch)
            ],
        )

    def test_context_is_read_back(self):
        context = _context()
        serialized = self._serialize(context)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def read(serialized):
            stored = tf.io.parse_example(serialized, examples.CONTEXT_SPEC)
            return examples.parse_context(stored, 5, 7)

        self._assert_same(read(tf.constant(serialized)), context)
        # One by one, and in another order.
        for i in (2, 1, 0):
            self._assert_same(
                read(tf.constant(serialized[i : i + 1])),
                HotpotQAContext(*(value[i : i + 1] for value in context)),
            )

    def test_context_is_read_back_with_the_features(self):
        """As the SavedModel does it."""
        context = _context()
        parsed = etc_features.parse(
            tf.constant(self._serialize(context)),
            5,
            7,
            extra=dict(examples.CONTEXT_SPEC),
        )
        self.assertAllEqual(parsed["long_token_ids"], tf.ones([3, 5]))
        stored = {name: parsed[name] for name in examples.CONTEXT_SPEC}
        self._assert_same(examples.parse_context(stored, 5, 7), context)

    def test_other_lengths(self):
        stored = tf.io.parse_example(
            tf.constant(self._serialize(_context())), examples.CONTEXT_SPEC
        )
        longer = examples.parse_context(stored, 9, 10)
        self.assertAllEqual(longer.starts[0], [-1, 0, -1, 299] + [-1] * 5)
        self.assertAllEqual(longer.global_segments[0][-4:], [-1] * 4)
        # Those that are needed.
        self._assert_same(
            examples.parse_context(stored, None, None), _context()
        )

    def test_padding_is_not_stored(self):
        values = examples.context_values(examples.on_host(_context()), 0)
        self.assertAllEqual(values["long_starts"], [-1, 0, -1, 299])
        self.assertAllEqual(values["long_ends"], [-1, 2, -1, 300])
        self.assertAllEqual(values["global_segments"], [-1, -1, 0, 1, -1, 4])
        values = examples.context_values(examples.on_host(_context()), 1)
        self.assertEqual({len(value) for value in values.values()}, {0})

    def test_no_records(self):
        stored = tf.io.parse_example(
            tf.zeros([0], tf.string), examples.CONTEXT_SPEC
        )
        context = examples.parse_context(stored, 5, 7)
        self.assertEqual(context.starts.shape, [0, 5])
        self.assertEqual(context.segments.to_list(), [])

    def test_record_and_labels_are_read_back(self):
        record = HotpotQARecord(
            id="\u00e9 1",
            question="Who?",
            context=(Paragraph("t", ("s",)),),
            answer="Jan",
            supporting_facts=(("t", 0), ("\u00e9", 3)),
        )
        labels = HotpotQALabels(
            supporting_facts=[-1, 1, 0, -1],
            answer_type=0,
            begins=[3, 7],
            ends=[4, 7],
            found=3,
            kept_facts=1,
        )
        nothing = HotpotQALabels([], 2, [], [], 0, 0)
        bare = HotpotQARecord("b", "q", record.context, "no", ())
        serialized = etc_features.serialize_batch(
            {"long_token_ids": tf.ones([2, 5], tf.int32)},
            [
                examples.record_values(record, labels),
                examples.record_values(bare, nothing),
            ],
        )
        stored = tf.io.parse_example(
            tf.constant(serialized),
            {
                **examples.LABEL_SPEC,
                "example_id": tf.io.FixedLenFeature([], tf.string),
                "question": tf.io.FixedLenFeature([], tf.string),
                "answer": tf.io.FixedLenFeature([], tf.string),
                "fact_titles": tf.io.RaggedFeature(tf.string),
                "fact_sentences": tf.io.RaggedFeature(tf.int64),
            },
        )
        for name, expected in {
            "example_id": ["\u00e9 1".encode(), b"b"],
            "question": [b"Who?", b"q"],
            "answer": [b"Jan", b"no"],
            "answer_type": [0, 2],
            "fact_titles": [[b"t", "\u00e9".encode()], []],
            "fact_sentences": [[0, 3], []],
            "supporting_facts": [[-1, 1, 0, -1], []],
            "answer_begins": [[3, 7], []],
            "answer_ends": [[4, 7], []],
        }.items():
            value = stored[name]
            if isinstance(value, tf.RaggedTensor):
                self.assertEqual(value.to_list(), expected, name)
            else:
                self.assertAllEqual(value, expected, name)
        self.assertAllEqual(
            examples.dense(stored, "supporting_facts", 6),
            [[-1, 1, 0, -1, -1, -1], [-1] * 6],
        )
        self.assertAllEqual(
            examples.dense(stored, "answer_begins", None), [[3, 7], [-1, -1]]
        )

    def test_without_labels_nothing_is_told_of_the_answer(self):
        record = HotpotQARecord(
            "a", "q", (Paragraph("t", ("s",)),), "s", (("t", 0),)
        )
        self.assertEqual(
            examples.record_values(record, None),
            {"example_id": b"a", "question": b"q"},
        )

    def test_evaluation_reads_what_is_stored(self):
        context = _context()
        record = HotpotQARecord("a", "q", ())
        (serialized,) = etc_features.serialize_batch(
            {"long_token_ids": tf.ones([1, 5], tf.int32)},
            [
                {
                    **examples.context_values(examples.on_host(context), 0),
                    **examples.record_values(record, None),
                }
            ],
        )
        stored = tf.io.parse_example([serialized], examples.EVALUATION_SPEC)
        self.assertAllEqual(stored["example_id"], [b"a"])
        for name, value in (
            ("global_segments", context.global_segments),
            ("long_starts", context.starts),
            ("long_ends", context.ends),
        ):
            length = value.shape[1]
            self.assertAllEqual(examples.dense(stored, name, length), value[:1])


if __name__ == "__main__":
    tf.test.main()
