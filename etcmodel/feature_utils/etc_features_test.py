import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import etc_features

# The worked WikiHop example in the description of the original code, with three
# positions of padding at the end of both inputs.
WIKIHOP = {
    "long_token_ids": [21, 22, 23, 31, 32, 41, 21, 42, 22, 23, 43, 0, 0, 0],
    "long_token_type_ids": [4, 4, 4, 3, 3, 1, 1, 1, 1, 1, 1, 0, 0, 0],
    "long_sentence_ids": [0, 1, 1, 2, 3, 5, 5, 6, 8, 8, 8, -1, -1, -1],
    "long_paragraph_ids": [-1] * 5 + [4, 4, 4, 7, 7, 7] + [-1] * 3,
    "long_paragraph_breakpoints": [1, 0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0],
    "l2g_linked_ids": [0, 1, 1, -1, -1, -1, 0, -1, 1, 1, -1, -1, -1, -1],
    "global_token_ids": [4, 4, 3, 3, 5, 1, 1, 5, 1, 0, 0, 0],
    "global_token_type_ids": [6, 6, 5, 5, 7, 0, 0, 7, 0, 0, 0, 0],
    "global_paragraph_breakpoints": [1, 1, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0],
}


def full_example(features):
    """Returns an example with its padding, as the original code stores it."""
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(
                    int64_list=tf.train.Int64List(value=values)
                )
                for name, values in features.items()
            }
        )
    ).SerializeToString()


class EtcFeaturesTest(tf.test.TestCase, parameterized.TestCase):
    def test_names(self):
        self.assertCountEqual(etc_features.FEATURES, WIKIHOP)
        self.assertLen(etc_features.LONG_FEATURES, 6)

    def test_trim_padding(self):
        trim = etc_features.trim_padding
        self.assertAllEqual(trim(np.array([3, -1, 5, -1]), -1), [3, -1, 5])
        self.assertAllEqual(trim(np.array([0, 0]), 0), [])
        self.assertAllEqual(trim(np.array([], np.int32), 0), [])

    def test_padding_is_not_stored(self):
        example = tf.train.Example.FromString(etc_features.serialize(WIKIHOP))
        stored = example.features.feature
        self.assertLen(stored["long_token_ids"].int64_list.value, 11)
        self.assertLen(stored["l2g_linked_ids"].int64_list.value, 10)
        self.assertLen(stored["global_token_type_ids"].int64_list.value, 8)

    @parameterized.parameters(
        (14, 12, etc_features.serialize),
        (14, 12, full_example),
        (20, 15, etc_features.serialize),
        (11, 9, full_example),
    )
    def test_round_trip(self, long_length, global_length, writer):
        parsed = etc_features.parse(
            tf.constant([writer(WIKIHOP)]), long_length, global_length
        )
        self.assertCountEqual(parsed, WIKIHOP)
        for name, values in WIKIHOP.items():
            is_long = name in etc_features.LONG_FEATURES
            length = long_length if is_long else global_length
            pad = etc_features.FEATURES[name]
            expected = (values + [pad] * 20)[:length]
            self.assertEqual(parsed[name].dtype, tf.int32)
            self.assertAllEqual(parsed[name], [expected], name)

    def test_graph_with_static_shapes_and_unknown_lengths(self):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def parse(serialized):
            features = etc_features.parse(serialized, 14, None)
            self.assertEqual(features["long_token_ids"].shape[1], 14)
            return features

        short = {"long_token_ids": [7], "global_token_ids": [1]}
        parsed = parse(
            tf.constant(
                [etc_features.serialize(WIKIHOP), etc_features.serialize(short)]
            )
        )
        self.assertAllEqual(
            parsed["long_token_ids"],
            [WIKIHOP["long_token_ids"], [7] + [0] * 13],
        )
        # Missing features are filled with padding.
        self.assertAllEqual(parsed["l2g_linked_ids"][1], [-1] * 14)
        self.assertAllEqual(parsed["global_token_ids"][1], [1] + [0] * 8)

    def test_too_long_is_an_error_that_names_the_feature(self):
        serialized = tf.constant([etc_features.serialize(WIKIHOP)])
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, "'long_token_ids'.* longer than 10"
        ):
            etc_features.parse(serialized, 10, 12, names=["long_token_ids"])

    def test_extra_values(self):
        first = {"id": "réc", "label": 3, "weight": 0.5, "names": [b"\x00"]}
        second = {"id": "b", "label": 4, "weight": 1.0, "names": ["x", "y"]}
        serialized = [
            etc_features.serialize({"long_token_ids": tf.constant(ids)}, extra)
            for ids, extra in (([1, 0], first), ([2, 3], second))
        ]
        parsed = etc_features.parse(
            tf.constant(serialized),
            2,
            0,
            extra={
                "id": tf.io.FixedLenFeature([], tf.string),
                "label": tf.io.FixedLenFeature([], tf.int64),
                "weight": tf.io.FixedLenFeature([], tf.float32),
                "names": tf.io.RaggedFeature(tf.string),
            },
        )
        self.assertAllEqual(parsed["id"], ["réc".encode(), b"b"])
        self.assertAllEqual(parsed["label"], [3, 4])
        self.assertAllEqual(parsed["weight"], [0.5, 1.0])
        self.assertAllEqual(
            parsed["names"], tf.ragged.constant([[b"\x00"], [b"x", b"y"]])
        )
        self.assertAllEqual(parsed["long_token_ids"], [[1, 0], [2, 3]])

    def test_without_lengths(self):
        """Features are padded to the longest one of the batch."""
        serialized = [
            etc_features.serialize({"long_token_ids": [5, 6, 7]}),
            etc_features.serialize(
                {"long_token_ids": [8], "long_sentence_ids": [1, 2, 3, 4]}
            ),
        ]
        parsed = etc_features.parse(tf.constant(serialized), None, None)
        self.assertAllEqual(
            [[5, 6, 7, 0], [8, 0, 0, 0]], parsed["long_token_ids"]
        )
        sentences = parsed["long_sentence_ids"]
        self.assertAllEqual([1, 2, 3, 4], sentences[1])
        self.assertEqual([2, 4], sentences.shape)
        self.assertEqual([2, 0], parsed["global_token_ids"].shape)

    def test_measure(self):
        """Trailing padding does not count."""
        serialized = etc_features.serialize(
            {
                "long_token_ids": [8, 0],
                "long_sentence_ids": [1, 0, 0, -1],
                "global_token_ids": [0, 5],
            },
            {"example_id": "a", "more": [1, 2, 3, 4, 5]},
        )
        self.assertEqual(
            {"long_length": 3, "global_length": 2},
            etc_features.measure(serialized),
        )
        self.assertEqual(
            {"long_length": 0, "global_length": 0}, etc_features.measure(b"")
        )

    def test_bytes_do_not_depend_on_the_process(self):
        """Features are sorted, since protobuf's order varies by process."""
        names = [f"value_{i}" for i in range(10)]
        serialized = etc_features.serialize({}, dict.fromkeys(names, 1))
        places = [serialized.index(name.encode()) for name in names]
        self.assertEqual(sorted(places), places)

    def test_empty_extra_values_are_of_any_kind(self):
        serialized = etc_features.serialize({}, {"a": [], "b": [], "c": []})
        kinds = {"a": tf.string, "b": tf.int64, "c": tf.float32}
        parsed = etc_features.parse(
            tf.constant([serialized]),
            1,
            1,
            extra={k: tf.io.RaggedFeature(v) for k, v in kinds.items()},
        )
        for name in kinds:
            self.assertEqual(parsed[name].to_list(), [[]])

    def test_errors(self):
        for features, extra, message in (
            ({"label": [1]}, None, "'label' is not a feature"),
            ({"long_token_ids": [[1]]}, None, "'long_token_ids'.*vector"),
            ({}, {"long_token_ids": [1]}, "another name"),
            ({}, {"x": ["a", 1.5, None]}, "'x' mixes"),
            ({}, {"x": 1j}, "'x'.*unsupported dtype complex128"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                etc_features.serialize(features, extra)
        with self.assertRaisesRegex(ValueError, "Unknown features"):
            etc_features.parse(tf.constant([b""]), 1, 1, names=["label"])
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, "parse example"
        ):
            etc_features.parse(tf.constant([b"not an example"]), 1, 1)


if __name__ == "__main__":
    tf.test.main()
