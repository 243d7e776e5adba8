import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils import layout
from etcmodel.feature_utils.layout import spec as spec_lib
from etcmodel.pipeline import example_schema

_FIELDS = example_schema.etc_schema(
    starts=example_schema.Field("long", example_schema.CONTEXT, pad=-1),
    kinds=example_schema.Field("global", example_schema.LABEL, pad=-1),
    segments=example_schema.Field("list", example_schema.TEXT, tf.string),
    numbers=example_schema.Field("list", example_schema.LABEL),
    weight=example_schema.Field("one", example_schema.LABEL, tf.float32),
)

_SIZES = {"long_length": 3, "global_length": 3}


def _features(long, short):
    """Returns the ETC features of a record: token ids and padding."""
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
            {
                **_features([5, 0, 7], [1, 1, 0]),
                "example_id": "a",
                "starts": np.array([3, -1, 4, -1]),
                "kinds": [0, 1, -1],
                "segments": ["x", "\u00e9\x00"],
                "numbers": [9],
                "weight": 0.5,
                "unread": "note",
            },
        ),
        # A record without text has only the required features.
        _FIELDS.serialize(
            {
                **_features([8, 0, 0], [0, 0, 0]),
                "example_id": "b",
                "window": 2,
                "weight": 1.0,
            },
        ),
    ]


class SchemaTest(tf.test.TestCase, parameterized.TestCase):
    def _parse(self, *roles, long_length=5):
        sizes = {"long_length": long_length, "global_length": 3}
        return _FIELDS.parse(tf.constant(_examples()), sizes, roles)

    def test_parses_serialized_examples(self):
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

    def test_reads_only_the_given_roles(self):
        """Without the role `LABEL`, parses a record without labels."""
        _, fields = self._parse(example_schema.TEXT)
        self.assertEqual({"segments"}, set(fields))
        self.assertEqual(["kinds", "numbers", "weight"], _FIELDS.names("label"))

    def test_required_field(self):
        example = _FIELDS.serialize({"example_id": "a"})
        with self.assertRaisesRegex(tf.errors.OpError, "weight"):
            _FIELDS.parse(
                tf.constant([example]), _SIZES, [example_schema.LABEL]
            )

    @parameterized.parameters(
        ({"long_token_ids": ("long",)}, "long_token_ids"),
        ({"window": ("one",)}, "window"),
        ({"gold": ("one",)}, "gold"),
        ({"x": ("wide",)}, "'wide'"),
    )
    def test_invalid_fields(self, fields, message):
        with self.assertRaisesRegex(ValueError, message):
            example_schema.etc_schema(
                **{
                    x: example_schema.Field(*y, "label")
                    for x, y in fields.items()
                }
            )

    def test_encoder_inputs(self):
        """Parses link features and embedded values at different lengths."""
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
        fields = example_schema.etc_schema(
            spec.encoder_inputs,
            place=example_schema.Field("long", "context", pad=0),
        )
        specs = fields.input_specs()
        self.assertEqual(["to", "on", "look"], [*specs][9:])
        self.assertEqual([None, None, 2], specs["look"].shape)
        self.assertEqual(tf.float32, specs["look"].dtype)
        example = fields.serialize(
            {
                **_features([5, 6, 7], [1, 0]),
                "example_id": "a",
                "to": [-1, 0, -1],
                "on": [1, -1],
                # Trailing zeros are values here, not padding.
                "look": np.array([[0.5, 1], [2, 0], [0, 0]], np.float32),
                "place": [3, 0, 0],
            },
        )
        for long, short in ((5, 3), (None, None)):
            sizes = {"long_length": long, "global_length": short}
            read, context = fields.parse(
                tf.constant([example]), sizes, [example_schema.CONTEXT]
            )
            more = [[0, 0]] * 2 if long else []
            self.assertAllEqual(
                [[[0.5, 1], [2, 0], [0, 0], *more]], read["look"]
            )
            self.assertAllEqual(read["to"][0, :3], [-1, 0, -1])
            self.assertAllEqual(read["on"][0, :1], [1])
            self.assertEqual(read["on"].shape, read["global_token_ids"].shape)
            self.assertAllEqual(context["place"][0, :3], [3, 0, 0])

    def test_segments(self):
        """Parses fields of segments that hold scalars or vectors."""
        schema = example_schema.ExampleSchema(
            example_schema.Packing({"ids": "blocks"}, "blocks"),
            ids=example_schema.Field("block", "input"),
            tokens=example_schema.Field("block", "input", size="tokens"),
            places=example_schema.Field(
                "block", "context", size="tokens", as_steps=True
            ),
            example_id=example_schema.Field("one", "context", tf.string),
        )
        specs = schema.input_specs()
        self.assertEqual([None], specs["ids"].shape)
        self.assertEqual([None, None], specs["tokens"].shape)
        example = schema.serialize(
            {
                "ids": [1, 2],
                "tokens": np.array([[3, 0, 0], [0, 4, 5]]),
                "places": np.array([[-1, 70, 74], [75, 79, 0]]),
                "example_id": ["a", "b"],
            }
        )
        stored = tf.train.Example.FromString(example).features.feature
        self.assertEqual(
            [-1, 71, 4, 75, 4, -79], list(stored["places"].int64_list.value)
        )
        read, context = schema.parse(
            tf.constant([example]), {"blocks": 2, "tokens": 3}, ["context"]
        )
        self.assertAllEqual([[1, 2]], read["ids"])
        self.assertAllEqual([[[3, 0, 0], [0, 4, 5]]], read["tokens"])
        self.assertAllEqual([[[-1, 70, 74], [75, 79, 0]]], context["places"])
        self.assertEqual([[b"a", b"b"]], context["example_id"].to_list())
        with self.assertRaisesRegex(tf.errors.OpError, "tokens"):
            schema.parse(tf.constant([example]), {"blocks": 3, "tokens": 3}, [])

    def test_examples_for_training_have_no_answers(self):
        """Examples for training lack texts, so parsing texts is an error."""
        values = {**_features([5], [1]), "example_id": "a", "segments": ["x"]}
        stored = _FIELDS.select({**values, "note": "q", "weight": 1.0}, "train")
        self.assertNoCommonElements(stored, ["segments", "note"])
        self.assertEqual(values, _FIELDS.select(values, "dev"))
        serialized = tf.constant([_FIELDS.serialize(stored)])
        _, fields = _FIELDS.parse(serialized, _SIZES, ["label", "context"])
        self.assertAllEqual([1.0], fields["weight"])
        with self.assertRaisesRegex(tf.errors.OpError, "`split=train`"):
            _FIELDS.parse(serialized, _SIZES, ["text"])

    @parameterized.parameters("window", "place")
    def test_names_of_encoder_inputs_are_reserved(self, name):
        inputs = layout.EncoderInputs((spec_lib.LinkFeature(name),))
        with self.assertRaisesRegex(
            ValueError, rf"Rename the fields \['{name}'\]"
        ):
            example_schema.etc_schema(
                inputs, place=example_schema.Field("long", "context", pad=0)
            )


if __name__ == "__main__":
    tf.test.main()
