import json
import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.engine import predict
from etcmodel.engine import serve
from etcmodel.errors import UserError
from etcmodel.pipeline.spec import load
from etcmodel.serving import exported
from etcmodel.serving import rest
from etcmodel.tasks import registry
from testing import samples
from testing.tasks import CommandTestCase
from testing.tasks import write_json
from testing.tasks import write_small_saved_model
from testing.tasks import write_small_wikihop


class PredictTest(CommandTestCase):
    """Tests a SavedModel that always answers with the first candidate."""

    def setUp(self):
        super().setUp()
        self.saved_model = write_small_saved_model(self.directory)
        self.input, _ = write_small_wikihop(self.directory, 5)

    def _predict(self, **options):
        values = {
            "saved_model": self.saved_model,
            "input": self.input,
            "output": self.path("out.json"),
            **options,
        }
        return predict.predict(predict.Options(**values))

    def test_errors_name_options(self):
        for options, message in (
            ({"reading": ["a=b"]}, "`reading=a=b`: wikihop has no such"),
            ({"batch_size": 0}, "`batch_size` is 0"),
            ({"output": self.input}, "`output=.*` and `input=.*` are the same"),
        ):
            with self.assertRaisesRegex(UserError, message):
                self._predict(overwrite=True, **options)
        self.assertFalse(os.path.exists(self.path("out.json")))


# Task -> two records of different sizes.
_FEATURES = [*samples.OPENKP_HEADING[:8], 26.1, 0.0] * 2
_RECORDS = {
    "hotpotqa": [
        samples.hotpotqa(),
        samples.hotpotqa(_id="b", context=[["K\u00f6ln", ["Am Rhein."]]]),
    ],
    "nq": [
        samples.nq(),
        samples.nq(
            example_id=3,
            document_tokens=[{"token": "K\u00f6ln", "html_token": False}],
            long_answer_candidates=[],
            annotations=[],
        ),
    ],
    "openkp": [
        samples.openkp(),
        samples.openkp(
            [samples.openkp_node(0, 2, features=_FEATURES)], url="b"
        ),
    ],
}


class RequestTest(CommandTestCase):
    """Tests requests for models of which only the description exists."""

    def _request(self, task, axes=("serving_default", "text"), **options):
        note = self.path("model", exported.METADATA_FILE)
        os.makedirs(os.path.dirname(note), exist_ok=True)
        metadata = {"task": task, "options": {}, "axes": dict.fromkeys(axes)}
        write_json(note, metadata)
        with open(self.path("model", "saved_model.pb"), "w"):
            pass
        values = {"saved_model": self.path("model"), **options}
        return predict.request(predict.RequestOptions(**values))

    def _write(self, task, records):
        """Writes records in the format of the task."""
        if task in ("nq", "openkp"):
            with open(self.path("a.jsonl"), "w", encoding="utf-8") as stream:
                stream.writelines(f"{json.dumps(x)}\n" for x in records)
            return self.path("a.jsonl")
        write_json(self.path("a.json"), records)
        return self.path("a.json")

    @parameterized.parameters(*_RECORDS)
    def test_a_server_reads_the_inputs_of_the_records_from_it(self, task):
        path = self._write(task, _RECORDS[task])
        made = self._request(task, input=path)
        self.assertEqual((2, ()), made[1:])
        spec = registry.get(task)
        preprocessor = load(spec.preprocessor)
        specs = {x: y.spec for x, y in preprocessor.INPUTS.items()}
        parsed = rest.parse(made.body, {"serving_default": specs})
        records = [*spec.dataset.FORMAT.read(path, "predict")]
        expected = preprocessor.raw_batch(records)
        self.assertEqual([*expected], [*parsed.inputs])
        for name, x in expected.items():
            self.assertEqual(x.dtype, parsed.inputs[name].dtype)
            np.testing.assert_array_equal(x, parsed.inputs[name])

    def test_pads_the_records(self):
        path = self._write("hotpotqa", _RECORDS["hotpotqa"])
        content = json.loads(self._request("hotpotqa", input=path).body)
        self.assertEqual("serving_default", content["signature_name"])
        self.assertEqual(
            {
                "question": "In which country was Jan born?",
                "titles": ["K\u00f6ln", ""],
                "sentences": [["Am Rhein.", "", ""], ["", "", ""]],
            },
            content["instances"][1],
        )

    def test_plain_texts(self):
        for name, text in (("a.md", "# Jan\nK\u00f6ln."), ("b.md", "Brno")):
            with open(self.path(name), "w", encoding="utf-8") as stream:
                stream.write(text)
        path = self.path("*.md")
        made = self._request("answer", input=path, query=" Who? ")
        self.assertEqual(
            {
                "signature_name": "text",
                "instances": [
                    {"query": "Who?", "text": "# Jan\nK\u00f6ln."},
                    {"query": "Who?", "text": "Brno"},
                ],
            },
            json.loads(made.body),
        )
        made = self._request("openkp", input=self.path("b.md"))
        content = json.loads(made.body)
        self.assertEqual([{"text": "Brno"}], content["instances"])
        with self.assertRaisesRegex(UserError, "openkp takes no query"):
            self._request("openkp", input=path, query="Who?")
        with self.assertRaisesRegex(UserError, "no signature `text`.*a.md"):
            self._request("openkp", ["serving_default"], input=path)
        preprocessor = load(registry.get("openkp").preprocessor)
        with (
            mock.patch.object(preprocessor, "TEXT_REQUEST", {}),
            self.assertRaisesRegex(UserError, "does not answer plain texts"),
        ):
            self._request("openkp", input=path)

    def test_notes(self):
        """Notes skipped and omitted records, and a body that is too large."""
        records = [samples.wikihop(id=x) for x in "abc"]
        del records[0]["supports"]
        path = self._write("wikihop", records)
        options = {"input": path, "skip_bad_records": True}
        for most, notes in ((2, ()), (1, ("the first 1 records of",))):
            with (
                mock.patch.object(serve.Options, "max_records", most),
                mock.patch.object(serve.Options, "max_body_bytes", 10),
            ):
                made = self._request("wikihop", **options)
            self.assertEqual(most, made.num_records)
            self.assertLen(json.loads(made.body)["instances"], most)
            for note, expected in zip(
                made.notes,
                ("Skipped 1 bad", *notes, "accepts 10 by default"),
                strict=True,
            ):
                self.assertIn(expected, note)
        with self.assertRaisesRegex(UserError, "record 0.*supports"):
            self._request("wikihop", input=path)

    def test_no_usable_record(self):
        features = [1e39, *samples.OPENKP_HEADING[1:]] * 2
        nodes = [samples.openkp_node(0, 2, features=features)]
        path = self._write("openkp", [samples.openkp(nodes)])
        message = "'http://a.com' has a number in node_features .* float32"
        with self.assertRaisesRegex(UserError, message):
            self._request("openkp", input=path)
        path = self._write("wikihop", [{"_id": "x"}])
        with self.assertRaisesRegex(UserError, "no usable record.*Skipped 1"):
            self._request("wikihop", input=path, skip_bad_records=True)


if __name__ == "__main__":
    tf.test.main()
