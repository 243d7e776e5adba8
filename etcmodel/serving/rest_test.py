import json

import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.serving import rest

SIGNATURES = {
    "serving_default": {
        "question": tf.TensorSpec([None], tf.string),
        "texts": tf.TensorSpec([None, None], tf.string),
        "starts": tf.TensorSpec([None, 2], tf.int32),
        "flags": tf.TensorSpec([None], tf.bool),
        "weights": tf.TensorSpec([None], tf.float32),
    },
    "examples": {"examples": tf.TensorSpec([None], tf.string)},
}
RECORD = {
    "question": "Wer?",
    "texts": ["ein Text", ""],
    "starts": [0, 1],
    "flags": True,
    "weights": 1,
}


def parse(content, **changes):
    if isinstance(content, dict):
        content = json.dumps({**content, **changes})
    if isinstance(content, str):
        content = content.encode("utf-8")
    return rest.parse(content, SIGNATURES)


def one(**changes):
    return {"instances": [{**RECORD, **changes}]}


def columns(number):
    return {name: [x] * number for name, x in RECORD.items()}


class ParseTest(tf.test.TestCase):
    def test_rows_and_columns(self):
        by_row = parse({"instances": [RECORD, RECORD]})
        columns = {name: [x, x] for name, x in RECORD.items()}
        by_column = parse({"inputs": columns})
        self.assertTrue(by_row.by_row)
        self.assertFalse(by_column.by_row)
        for request in (by_row, by_column):
            self.assertEqual("serving_default", request.signature_name)
            inputs = request.inputs
            self.assertEqual([[b"ein Text", b""]] * 2, inputs["texts"].tolist())
            self.assertEqual([b"Wer?"] * 2, inputs["question"].tolist())
            self.assertAllEqual([[0, 1]] * 2, inputs["starts"])
            self.assertEqual(np.int32, inputs["starts"].dtype)
            self.assertAllEqual([True, True], inputs["flags"])
            self.assertEqual(np.float32, inputs["weights"].dtype)

    def test_a_lone_input_needs_no_name(self):
        for content in (
            {"instances": ["a", "b"]},
            {"instances": [{"examples": "a"}, {"examples": "b"}]},
            {"instances": [{"b64": "YQ=="}, {"b64": "Yg=="}]},
            {"inputs": ["a", "b"]},
            {"inputs": {"examples": ["a", "b"]}},
        ):
            request = parse(content, signature_name="examples")
            self.assertEqual([b"a", b"b"], request.inputs["examples"].tolist())

    def test_text_is_kept(self):
        text = "a\0b \u2028 \U0001f600 ä\0"
        made = parse(one(question=text)).inputs["question"]
        self.assertEqual(text.encode("utf-8"), made[0])

    def test_empty_inner_lists(self):
        made = parse(one(texts=[])).inputs["texts"]
        self.assertEqual((1, 0), made.shape)
        specs = {"x": {"x": tf.TensorSpec([None, None, 20], tf.float32)}}
        body = b'{"signature_name": "x", "instances": [{"x": []}]}'
        self.assertEqual((1, 0, 20), rest.parse(body, specs).inputs["x"].shape)

    def test_errors_name_the_input_and_what_was_expected(self):
        for content, message in (
            ("{", "is not JSON"),
            (b"\xff", "byte 0 is not UTF-8"),
            ("[" * 100_000, "nested too deep|not JSON"),
            ("[]", "holds a list, not an object"),
            ({}, 'either "instances" or "inputs"'),
            ({**one(), "inputs": {}}, 'either "instances" or "inputs"'),
            ({**one(), "extra": 1}, 'either "instances" or "inputs"'),
            ({**one(), "signature_name": "x"}, "no signature 'x'. Choose"),
            ({**one(), "signature_name": ["x"]}, "no signature"),
            ({"instances": []}, "a list without any"),
            ({"instances": {}}, "got an object"),
            ({"instances": [RECORD, 3]}, r"instances\[1\]: expected .* number"),
            ({"instances": [{"question": "a"}]}, "'texts' is missing"),
            (one(other=1), "'other' is unknown"),
            (one(question=None), "question must contain strings, got null"),
            (one(question=["a"]), "question must contain strings, got a list"),
            (one(question="\ud800"), "half of a surrogate pair"),
            (one(question={"b64": "?"}), 'question: .* base64 in "b64"'),
            (one(question={"b64": 3}), "question: .* got 3"),
            (one(texts="a"), "texts must be nested 2 deep.* a string"),
            (one(texts=[["a"]]), "texts must contain strings, got a list"),
            (one(starts=[0]), r"shape \[1, 1\], expected \[None, 2\]"),
            (one(starts=[0, 1.0]), "whole numbers, got a number"),
            (one(starts=[0, True]), "whole numbers, got a boolean"),
            (one(starts=[0, 2**31]), "2147483648, which is no int32"),
            (one(flags=1), "booleans, got a whole number"),
            (one(weights="1"), "numbers, got a string"),
            (one(weights=10**400), "which is no float32"),
            (one(weights=-1e39), "-1e.39, which is no float32"),
            (one(weights=float("nan")), "NaN is no number of JSON"),
            ('{"instances": [], "instances": []}', "'instances' twice"),
            (
                {"inputs": columns(2) | {"flags": [True]}},
                "question and flags .* 2 and 1",
            ),
            (
                {"inputs": columns(0) | {"starts": []}},
                "question has no records",
            ),
            (
                {"instances": [RECORD, {**RECORD, "texts": ["a"]}]},
                r'different sizes at depth 2: 1 and 2. Pad .* with ""',
            ),
        ):
            with self.assertRaisesRegex(UserError, message):
                parse(content)


class BodyTest(tf.test.TestCase):
    def test_a_body_is_parsed_to_its_inputs(self):
        inputs = {"examples": np.array([b"K\xc3\xb6ln", b"\xff"], object)}
        body = rest.body_of("examples", inputs)
        self.assertEqual(
            {
                "instances": [
                    {"examples": "Köln"},
                    {"examples": {"b64": "/w=="}},
                ],
                "signature_name": "examples",
            },
            body,
        )
        made = parse(body).inputs["examples"]
        self.assertEqual([b"K\xc3\xb6ln", b"\xff"], made.tolist())


class RenderTest(tf.test.TestCase):
    OUTPUTS = {
        "answer": np.array([b"K\xc3\xb6ln", b""], object),
        "scores": np.array([[0.5, 1.0], [0.25, 0.0]], np.float32),
        "raw_bytes": np.array([b"\xff", b"a"], object),
    }

    def test_rows(self):
        self.assertEqual(
            {
                "predictions": [
                    {
                        "answer": "Köln",
                        "scores": [0.5, 1.0],
                        "raw_bytes": {"b64": "/w=="},
                    },
                    {
                        "answer": "",
                        "scores": [0.25, 0.0],
                        "raw_bytes": {"b64": "YQ=="},
                    },
                ]
            },
            json.loads(rest.render(self.OUTPUTS, True)),
        )

    def test_columns_and_lone_outputs(self):
        made = json.loads(rest.render(self.OUTPUTS, False))
        self.assertEqual(["Köln", ""], made["outputs"]["answer"])
        lone = {"scores": self.OUTPUTS["scores"]}
        expected = [[0.5, 1.0], [0.25, 0.0]]
        self.assertEqual(
            {"predictions": expected}, json.loads(rest.render(lone, True))
        )
        self.assertEqual(
            {"outputs": expected}, json.loads(rest.render(lone, False))
        )


if __name__ == "__main__":
    tf.test.main()
