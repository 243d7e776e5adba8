import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils import layout
from etcmodel.feature_utils.layout import spec as spec_lib
from etcmodel.pipeline import example_schema

_FIELDS = example_schema.Schema(
    starts=example_schema.Field("long", example_schema.CONTEXT, pad=-1),
    kinds=example_schema.Field("global", example_schema.LABEL, pad=-1),
    segments=example_schema.Field("list", example_schema.TEXT, tf.string),
    numbers=example_schema.Field("list", example_schema.LABEL),
    weight=example_schema.Field("one", example_schema.LABEL, tf.float32),
)


def _features(long, short):
    """The EtcFeatures of a record: its ids, and padding."""
    return {
        name: np.array(
            (long if name in etc_features.LONG_FEATURES else short)
            if name.endswith("token_ids")
            else [pad] * 3
        )
        for name, pad in etc_features.FEATURES.items()
    }


def _examples():
    return [
        _FIELDS.serialize(
            _features([5, 0, 7], [1, 1, 0]),
            {
                "example_id": "a",
                "starts": np.array([3, -1, 4, -1]),
                "kinds": [0, 1, -1],
                "segments": ["x", "\u00e9\x00"],
                "numbers": [9],
                "weight": 0.5,
                "unread": "note",
            },
        ),
        # Nothing but what must be there, as of a record without text.
        _FIELDS.serialize(
            _features([8, 0, 0], [0, 0, 0]),
            {"example_id": "b", "window": 2, "weight": 1.0},
        ),
    ]


class SchemaTest(tf.test.TestCase, parameterized.TestCase):
    def _parse(self, *roles, long_length=5):
        return _FIELDS.parse(tf.constant(_examples()), long_length, 3, roles)

    def test_reads_what_was_written(self):
        features, fields = self._parse(
            example_schema.LABEL, example_schema.CONTEXT, example_schema.TEXT
        )
        self.assertEqual(set(etc_features.FEATURES), set(features))
        self.assertAllEqual(
            [[5, 0, 7, 0, 0], [8, 0, 0, 0, 0]], features["long_token_ids"]
        )
        expected = {
            "example_id": [b"a", b"b"],
            "window": [0, 2],
            "is_real_example": [1, 1],
            "starts": [[3, -1, 4, -1, -1], [-1] * 5],
            "kinds": [[0, 1, -1], [-1] * 3],
            "weight": [0.5, 1.0],
        }
        for name, value in expected.items():
            self.assertAllEqual(value, fields.pop(name), name)
        lists = {
            "segments": [[b"x", b"\xc3\xa9\x00"], []],
            "numbers": [[9], []],
        }
        self.assertEqual(lists, {x: y.to_list() for x, y in fields.items()})
        self.assertEqual(tf.int32, fields["numbers"].dtype)

    def test_padding_is_not_stored(self):
        stored = tf.train.Example.FromString(_examples()[0]).features.feature
        self.assertEqual([3, -1, 4], stored["starts"].int64_list.value)
        self.assertEqual([0, 1], stored["kinds"].int64_list.value)
        self.assertEqual([b"note"], stored["unread"].bytes_list.value)

    def test_reads_only_what_is_asked_for(self):
        """A record whose answer is not known has no labels."""
        _, fields = self._parse(example_schema.TEXT)
        self.assertEqual({"segments"}, set(fields))
        self.assertEqual(["kinds", "numbers", "weight"], _FIELDS.names("label"))

    def test_what_all_must_have(self):
        example = _FIELDS.serialize({}, {"example_id": "a"})
        with self.assertRaisesRegex(tf.errors.OpError, "weight"):
            _FIELDS.parse(tf.constant([example]), 3, 3, [example_schema.LABEL])

    @parameterized.parameters(
        ({"long_token_ids": ("long",)}, "long_token_ids"),
        ({"window": ("one",)}, "window"),
        ({"reference": ("one",)}, "reference"),
        ({"x": ("wide",)}, "'wide'"),
    )
    def test_fields_that_cannot_be(self, fields, message):
        with self.assertRaisesRegex(ValueError, message):
            example_schema.Schema(
                **{
                    x: example_schema.Field(*y, "label")
                    for x, y in fields.items()
                }
            )

    def test_what_the_encoder_reads(self):
        """Further links and embedded values; whatever the lengths are."""
        spec = layout.LayoutSpec(
            [layout.Section("text", unit_global=layout.GlobalToken(1))],
            [
                layout.Link("to", "text", "text"),
                layout.Link("on", *["text"] * 2, *["unit"] * 2, "global"),
            ],
            [
                layout.Value(
                    *("look", "text"), dtype="float32", shape=(2,), embed=True
                ),
                layout.Value("place", "text"),
            ],
        )
        fields = example_schema.Schema(
            spec.encoder_inputs,
            place=example_schema.Field("long", "context", pad=0),
        )
        specs = fields.input_specs()
        self.assertEqual(["to", "on", "look"], [*specs][9:])
        self.assertEqual([None, None, 2], specs["look"].shape)
        self.assertEqual(tf.float32, specs["look"].dtype)
        example = fields.serialize(
            _features([5, 6, 7], [1, 0]),
            {
                "example_id": "a",
                "to": [-1, 0, -1],
                "on": [1, -1],
                # The last numbers are no padding of the second token alone.
                "look": np.array([[0.5, 1], [2, 0], [0, 0]], np.float32),
                "place": [3, 0, 0],
            },
        )
        for long, short in ((5, 3), (None, None)):
            read, context = fields.parse(
                tf.constant([example]), long, short, [example_schema.CONTEXT]
            )
            more = [[0, 0]] * 2 if long else []
            self.assertAllEqual(
                [[[0.5, 1], [2, 0], [0, 0], *more]], read["look"]
            )
            self.assertAllEqual(read["to"][0, :3], [-1, 0, -1])
            self.assertAllEqual(read["on"][0, :1], [1])
            self.assertEqual(read["on"].shape, read["global_token_ids"].shape)
            self.assertAllEqual(context["place"][0, :3], [3, 0, 0])

    @parameterized.parameters("window", "place")
    def test_names_that_the_encoder_reads_are_taken(self, name):
        inputs = layout.EncoderInputs((spec_lib.LinkFeature(name),))
        with self.assertRaisesRegex(ValueError, rf"rename \['{name}'\]"):
            example_schema.Schema(
                inputs, place=example_schema.Field("long", "context", pad=0)
            )


if __name__ == "__main__":
    tf.test.main()
