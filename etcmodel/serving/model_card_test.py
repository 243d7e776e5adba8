import dataclasses
import os
import shlex
import tempfile

import huggingface_hub
import numpy as np
import tensorflow as tf
import yaml

from etcmodel.serving import model_card

_REQUESTS = {
    "serving_default": {
        "query": np.array([b"Who's \xc5\x81ukasz?"], dtype=object),
        "is_html": np.array([[True, False]]),
        "starts": np.array([[0, -1]], np.int32),
    },
    "text": {"text": np.array([b"a\n\n'b'"], dtype=object)},
    "features": {"ids": np.array([[1]])},
}
_FACTS = model_card.Facts(
    task="answer",
    summary="answers with evidence",
    pipeline_tag="question-answering",
    license="apache-2.0",
    languages=["en", "no"],
    num_examples=1234,
    steps=50,
    batch_size=16,
    unit="examples",
    main_metric="f1",
    run_metrics={"f1": 0.61},
    versions=[model_card.Version("float32", 400_000_000, 0.25)],
    num_validated=None,
    num_parameters=100_000_000,
    num_layers=12,
    num_bytes=404_000_000,
    length="at most 4,096 tokens.",
    vocab_size=30522,
    scripts={"Latin": 92.4, "Cyrillic": 7.6},
    lower_case=True,
    software={"etcmodel": "0.1.0", "python": "3.11"},
    requests=_REQUESTS,
)


def _card(**changes):
    """Returns the card's metadata and its text."""
    text = model_card.render(dataclasses.replace(_FACTS, **changes))
    start, metadata, body = text.split("---\n", 2)
    assert not start
    return yaml.safe_load(metadata), body


class ModelCardTest(tf.test.TestCase):
    def test_the_hub_reads_the_metadata(self):
        measured = [
            model_card.Version("float32", 400_000_000, 0.25, {"f1": 0.625}),
            model_card.Version(
                *("int8", 100_000_000, 0.5),
                {"f1": 0.62, "answer_loss": 0.5, "auroc": float("nan")},
            ),
        ]
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        model_card.write(
            folder,
            dataclasses.replace(_FACTS, versions=measured, num_validated=9),
        )
        path = os.path.join(folder, "README.md")
        data = huggingface_hub.ModelCard.load(path).data
        self.assertEqual("apache-2.0", data.license)
        # Norwegian is not the YAML value False.
        self.assertEqual(["en", "no"], data.language)
        self.assertEqual("etcmodel", data.library_name)
        self.assertEqual("question-answering", data.pipeline_tag)
        (result,) = data.eval_results
        self.assertEqual(
            ("question-answering", "f1", 0.62),
            (result.task_type, result.metric_type, result.metric_value),
        )

    def test_metadata_without_measurements(self):
        metadata, body = _card(license=None, languages=[], pipeline_tag="")
        self.assertEqual("other", metadata["license"])
        self.assertEqual("unknown", metadata["license_name"])
        self.assertNoCommonElements(
            metadata, ["language", "pipeline_tag", "model-index"]
        )
        self.assertIn("licence is not known. Set it with `--license`", body)
        self.assertIn("languages of the training data are not known", body)
        metadata, _ = _card(license="Terms: of #us")
        self.assertEqual(
            ("other", "Terms: of #us"),
            (metadata["license"], metadata["license_name"]),
        )

    def test_sections_state_the_facts(self):
        _, body = _card()
        for text in (
            "Training data: 1,234 examples of the task `answer`; training "
            "steps: 50, each of 16 examples.",
            "No metric was measured when the model was exported. The "
            "validation of the training measured",
            "| f1 | 0.61 |",
            "Parameters: 100,000,000. Layers of the encoder: 12. Size of all "
            "files of the model: 404 MB.",
            "| weights, MB | 400 |",
            "| time of a request, ms | 250 |",
            "at most 4,096 tokens.",
            "Latin 92 %, Cyrillic 8 %",
            "Exported with etcmodel 0.1.0, python 3.11",
        ):
            self.assertIn(text, body)
        _, body = _card(unit="segments")
        self.assertIn("steps: 50, each of 16 segments.", body)
        _, body = _card(num_examples=None, steps=None, run_metrics={})
        self.assertIn("a number of examples that is not known", body)
        self.assertNotIn("| f1", body)

    def test_a_checkpoint_that_no_metric_selected(self):
        measured = [
            model_card.Version("float32", 400_000_000, 0.25, {"f1": 0.625})
        ]
        for versions in (_FACTS.versions, measured):
            _, body = _card(versions=versions)
            self.assertIn("`f1` selected", body)
            _, body = _card(versions=versions, main_metric=None)
            self.assertNotIn("selected", body)
            self.assertRegex(body, r"[.:]\n\n\| metric")

    def test_compares_rounded_weights(self):
        versions = [
            model_card.Version("float32", 400_000_000, 0.25, {"f1": 0.625}),
            model_card.Version("int8", 100_000_000, 0.5, {"f1": 0.62}),
        ]
        _, body = _card(versions=versions, num_validated=9)
        self.assertIn("Measured on 9 validation examples", body)
        self.assertIn("| metric | float32 | int8 |", body)
        self.assertIn("| f1 | 0.625 | 0.62 |", body)
        self.assertIn("| weights, MB | 400 | 100 |", body)
        self.assertIn("| time of a request, ms | 250 | 500 |", body)
        metadata, body = _card(
            versions=[x._replace(metrics=None) for x in versions]
        )
        self.assertIn("The metric of the int8 weights was not measured", body)
        # The run measured its metrics with float32, not with the rounded
        # weights.
        self.assertNotIn("model-index", metadata)

    def test_requests_are_complete(self):
        """`export_card_test` runs the commands of a real card."""
        _, body = _card()
        default, text = [
            shlex.split(part.split("```")[0])
            for part in body.split("```bash\n")[1:]
        ]
        url = "http://localhost:8501/v1/models/answer:predict"
        self.assertEqual(["curl", url, "-d"], default[:3])
        row = {"query": "Who's Łukasz?", "is_html": [True, False]}
        row["starts"] = [0, -1]
        self.assertEqual({"instances": [row]}, yaml.safe_load(default[3]))
        self.assertEqual(
            {"signature_name": "text", "instances": [{"text": "a\n\n'b'"}]},
            yaml.safe_load(text[3]),
        )
        _, body = _card(
            requests={"serving_default": _REQUESTS["serving_default"]}
        )
        program = body.split("```python\n")[1].split("```")[0]
        compile(program, "card", "exec")
        self.assertIn("starts=tf.constant([[0, -1]], tf.int32),", program)
        self.assertIn("is_html=tf.constant([[True, False]], tf.bool)", program)

    def test_scripts(self):
        # Special tokens and digits do not count.
        tokens = ["[unused1]", "<s>", "##ab", "ｃ", "жд", "3", "中", "ªʰ", "[x"]
        self.assertEqual(
            {"Latin": 4 / 7, "Cyrillic": 2 / 7, "Chinese": 1 / 7},
            {x: y / 100 for x, y in model_card.scripts_of(tokens).items()},
        )
        many = ["a" * 300, "ж", "π"]
        self.assertEqual(["Latin", "others"], [*model_card.scripts_of(many)])
        self.assertEmpty(model_card.scripts_of(["[PAD]", "1"]))


if __name__ == "__main__":
    tf.test.main()
