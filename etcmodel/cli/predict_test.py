import contextlib
import json
import os
import resource
import shutil
import tempfile
from unittest import mock

import tensorflow as tf

from etcmodel.engine import serve
from etcmodel.serving import answers as answers_lib
from etcmodel.serving import exported
from testing import reading
from testing import tasks
from testing.tasks import CommandTestCase
from testing.tasks import read_json
from testing.tasks import run_cli
from testing.tasks import write_json


@contextlib.contextmanager
def _fake_model(task, answer, has_queries=False, reading=None, **noted):
    """Replaces the SavedModel by the function `answer`, with metadata."""
    model = mock.Mock(signatures={"serving_default": answer})
    metadata = {"task": task, "options": {}, "preprocessing_config": noted}
    metadata |= {"has_queries": has_queries, "reading": reading or {}}
    with (
        mock.patch.object(answers_lib, "load_saved_model", return_value=model),
        mock.patch.object(exported, "read_metadata", return_value=metadata),
    ):
        yield


@contextlib.contextmanager
def _fake_signatures(task, signatures):
    """Replaces the loading of a SavedModel by these signatures."""
    model = mock.Mock(signatures=signatures)
    with (
        _fake_model(task, None),
        mock.patch.object(answers_lib, "load_saved_model", return_value=model),
    ):
        yield


class PredictTest(CommandTestCase):
    """Tests a model that always answers `paris`, the first candidate."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.saved_model = tasks.write_small_saved_model(cls.root)

    def setUp(self):
        super().setUp()
        self.input, _ = tasks.write_small_wikihop(self.directory, 5)
        self.records = read_json(self.input)
        self.output = self.path("new", "answers.json")

    def _predict(self, *arguments):
        return run_cli(
            "predict",
            f"--saved_model={self.saved_model}",
            f"--input={self.input}",
            f"--output={self.output}",
            *arguments,
        )

    def test_official_format_and_metric(self):
        # Two batches; the last one is not full.
        metrics = self.path("new", "metrics.json")
        out = self.assert_succeeds(
            self._predict("--batch_size=3", f"--metrics={metrics}")
        )
        self.assertEqual({"accuracy": 0.4}, read_json(metrics))
        self.assertEqual(
            {f"small_{i}": "paris" for i in range(5)},
            read_json(self.output),
        )
        # The gold answers are paris, rome, oslo, bonn, paris.
        self.assertEqual(
            f"Wrote 5 answers to {self.output}.\n"
            "Metrics of 5 records with an answer:\naccuracy: 0.4\n",
            out,
        )

    def test_print_request(self):
        """Prints nothing but the request, notes apart; writes nothing."""
        with mock.patch.object(serve.Options, "max_records", 1):
            code, out, err = run_cli(
                "predict",
                f"--saved_model={self.saved_model}",
                f"--input={self.input}",
                "--print_request",
            )
        self.assertEqual(0, code)
        (record,) = json.loads(out)["instances"]
        self.assertEqual(self.records[0]["query"], record["query"])
        self.assertRegex(
            err, "^The request has the first 1 records of [^\n]*\n$"
        )
        for flag in ("output", "metrics"):
            self.assert_fails(
                run_cli(
                    "predict",
                    f"--saved_model={self.saved_model}",
                    f"--input={self.input}",
                    f"--{flag}={self.output}",
                    "--print_request",
                ),
                f"--{flag} does not apply to --print_request",
            )
        self.assertFalse(os.path.exists(self.output))

    def test_needs_an_output(self):
        self.output = ""
        self.assert_fails(self._predict(), "needs --output.* --print_request")

    def test_metric_of_the_records_with_an_answer(self):
        # Answers keep their accents and spaces.
        zurich = " Z\u00fcrich"
        self.records[0] |= {"candidates": [zurich, "oslo"], "answer": zurich}
        for record in self.records[1:]:
            del record["answer"]
        write_json(self.input, self.records)
        _, out, _ = self._predict("--batch_size=1")
        self.assertIn(
            "Metrics of 1 records with an answer:\naccuracy: 1\n", out
        )
        self.assertEqual(zurich, read_json(self.output)["small_0"])
        write_json(self.input, self.records[1:])
        _, out, _ = self._predict("--overwrite")
        self.assertEqual(f"Wrote 4 answers to {self.output}.\n", out)

    def test_bad_record(self):
        self.assert_succeeds(self._predict())
        before = read_json(self.output)
        del self.records[3]["supports"]
        write_json(self.input, self.records)
        self.assert_fails(
            self._predict("--batch_size=2", "--overwrite"),
            rf"{self.input}, record 3 \(id 'small_3'\)",
        )
        # The earlier answers are kept, and there is no partial file.
        self.assertEqual(before, read_json(self.output))
        self.assertLen(os.listdir(os.path.dirname(self.output)), 1)
        out = self.assert_succeeds(
            self._predict("--skip_bad_records", "--overwrite")
        )
        self.assertIn("Skipped 1 bad records", out)
        self.assertIn("They are not in the metrics", out)
        del before["small_3"]
        self.assertEqual(before, read_json(self.output))

    def test_record_that_is_too_large(self):
        self.records[3]["supports"] = ["x" * (3 << 20)]
        write_json(self.input, self.records)
        self.assert_fails(
            self._predict("--max_record_bytes=2000000"),
            rf"{self.input}, record 3: .* more than 2,000,000 bytes",
        )
        self.assert_succeeds(self._predict("--max_record_bytes=0"))

    def test_a_part_of_a_file(self):
        """Reads one set of NarrativeQA; the model always answers `x`."""
        path, _ = reading.write_small_narrativeqa(self.directory, 3)
        with open(path, encoding="utf-8") as stream:
            content = stream.read()
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(content.replace("1,train", "1,valid"))
        self.input = path
        with _fake_model(
            "read_twice_narrativeqa",
            lambda question, document: {
                "answer": tf.fill(tf.shape(question), "x")
            },
        ):
            out = self.assert_succeeds(
                self._predict("--reading=data_split=valid")
            )
            self.assert_fails(
                self._predict("--reading=data_split=dev", "--overwrite"),
                "--reading=data_split=dev: read_twice_narrativeqa: .* of all,",
            )
        self.assertStartsWith(out, "Wrote 1 answers")
        self.assertEqual(
            {"id": "1: Where does Jan live?", "answer": "x"},
            read_json(self.output),
        )

    def test_own_documents_have_the_fields_of_training_records(self):
        """Fields and label kind are stored; the model always predicts 10."""
        write_json(self.input, [{"body": "a", "stars": 12, "nr": 7}])
        names = {"text_field": "body", "label_field": "stars"}
        numbers = {"kind": "number", "label_mean": 8.0, "label_deviation": 2.0}
        with _fake_model(
            "classify",
            lambda query, titles, texts: {"number": tf.constant([10.0])},
            **numbers,
            # The record has no field `ask`.
            reading={**names, "query_field": "ask", "id_field": "nr"},
        ):
            out = self.assert_succeeds(self._predict())
            kind = "--reading=label_kind=single"
            self.assert_fails(
                self._predict("--overwrite", kind),
                f"{kind}: classify: label_kind is 'single', but",
            )
            self.assert_fails(
                self._predict("--overwrite", "--reading=text_field=text"),
                "field 'text': it is missing",
            )
        self.assertIn("\nmean_squared_error: 4\n", out)
        self.assertEqual(
            {"id": "7", "label": 10.0, "probabilities": {}},
            read_json(self.output),
        )

    def test_labels_that_the_model_does_not_know(self):
        """Unknown gold labels are scored as wrong, and counted."""
        rows = [{"text": "a", "label": x} for x in ("no", "nope", "yes", "x")]
        write_json(self.input, rows)
        with _fake_model(
            "classify",
            lambda query, titles, texts: {
                "label": tf.constant(["yes"]),
                "labels": tf.constant([["no", "yes"]]),
                "probabilities": tf.constant([[0.25, 0.75]]),
            },
            kind="single",
            labels=["no", "yes"],
        ):
            out = self.assert_succeeds(self._predict("--batch_size=1"))
        self.assertRegex(out, " 2  labels not in training data\n")
        self.assertIn("\naccuracy: 0.25\n", out)

    def test_metrics_of_labels(self):
        """Writes metrics and pictures if there are gold labels."""
        rows = [{"text": "a", "label": x} for x in ("no", "yes", "yes")]
        metrics = os.path.join(self.get_temp_dir(), "metrics.json")
        flags = "--overwrite", f"--metrics={metrics}"
        names = ["no", "yes"]
        with _fake_model(
            "classify",
            lambda query, titles, texts: {
                "label": tf.constant(["yes"]),
                "labels": tf.constant([names]),
                "probabilities": tf.constant([[0.25, 0.75]]),
            },
            kind="single",
            labels=names,
        ):
            write_json(self.input, [{"text": "a"}])
            self.assert_fails(
                self._predict(*flags), "is not written: no record of "
            )
            self.assertFalse(os.path.exists(metrics))
            write_json(self.input, rows)
            self.assert_succeeds(self._predict("--batch_size=1", *flags))
        self.assertAlmostEqual(2 / 3, read_json(metrics)["accuracy"])
        with open(metrics.replace(".json", "_report.txt")) as stream:
            self.assertRegex(stream.read(), " yes +0.67 +1.00 +0.80 +2\n")
        for name in ("confusion", "calibration"):
            path = metrics.replace(".json", f"_{name}.png")
            with open(path, "rb") as stream:
                self.assertEqual(b"\x89PNG", stream.read(4))

    def test_selected_paragraphs(self):
        """Labels are converted to the model's units, paragraphs."""
        rows = [{"paragraphs": [["a", "b"], ["c"]], "selected": [[0, 1]]}]
        write_json(self.input, rows)
        units = {
            "units": [["a b", "c"]],
            "unit_probabilities": [[0.75, 0.25]],
            "unit_paragraphs": [[0, 1]],
            "unit_numbers": [[0, 0]],
        }
        with _fake_model(
            "select",
            lambda query, titles, texts: {
                x: tf.constant(y) for x, y in units.items()
            },
            units="paragraphs",
        ):
            out = self.assert_succeeds(self._predict())
        self.assertIn("\nf1: 1\n", out)
        self.assertEqual([[0, 0]], read_json(self.output)["selected"])

    def test_strings_for_lists_of_texts(self):
        """If the model was trained on lists of texts, strings are counted."""
        write_json(self.input, [{"text": "a. b."}, {"text": [["a.", "b."]]}])
        units = {
            "units": [["a. b."]],
            "unit_probabilities": [[0.75]],
            "unit_paragraphs": [[0]],
            "unit_numbers": [[0]],
            "tokens_cut": [3],
        }
        with _fake_model(
            "select",
            lambda query, titles, texts: {
                x: tf.constant(y) for x, y in units.items()
            },
            units="texts",
        ):
            out = self.assert_succeeds(self._predict("--batch_size=1"))
        self.assertIn("1  documents not split into texts\n", out)
        self.assertIn("2  records truncated\n", out)

    def test_records_without_query(self):
        """Counts them if the training records had queries."""
        write_json(self.input, [{"text": "a"}, {"text": "a", "query": "b"}])
        for had_queries in (False, True):
            with _fake_model(
                "classify",
                lambda query, titles, texts: {"number": tf.constant([10.0])},
                had_queries,
                kind="number",
                label_deviation=2.0,
            ):
                flags = "--batch_size=1", "--overwrite"
                out = self.assert_succeeds(self._predict(*flags))
            (self.assertIn if had_queries else self.assertNotIn)(
                "1  records without query\n", out
            )

    def test_records_without_text(self):
        """Records that training would leave out are predicted and scored."""
        self.records[1]["supports"] = [""]
        write_json(self.input, self.records)
        out = self.assert_succeeds(self._predict())
        self.assertIn(
            "Metrics of 5 records with an answer:\naccuracy: 0.4\n", out
        )

    def test_plain_texts(self):
        """Each file is a record; the model answers with its first byte."""
        self.input = self.path("*.md")
        for name, text in (("a", "Brno"), ("b", "Oslo"), ("c", " ")):
            with open(self.path(f"{name}.md"), "w") as stream:
                stream.write(text)

        def answer(query, candidates, text):
            tf.debugging.assert_equal(candidates, "Oslo\nBrno")
            return {
                "answer": tf.strings.join(
                    [query, tf.strings.substr(text, 0, 1)]
                ),
                "tokens_cut": tf.constant([0, 3]),
            }

        flags = ["--query= Who? ", "--candidate=Oslo", "--candidate= Brno"]
        signatures = {"serving_default": None, "text": answer}
        with _fake_signatures("wikihop", signatures):
            self.assert_fails(self._predict(*flags), "c.md.*has no text")
            flags.append("--skip_bad_records")
            out = self.assert_succeeds(self._predict(*flags))
            for given, message in (
                (flags[1:], "answers questions: give --query, such as"),
                (flags[:1], "chooses from candidates: give --candidate"),
                ([*flags, "--candidate= "], "some text in one line"),
                ([*flags, "--reading=a=b"], "has no such option"),
            ):
                self.assert_fails(self._predict("--overwrite", *given), message)
            del signatures["text"]
            self.assert_fails(
                self._predict(*flags, "--overwrite"), "no signature .*text"
            )
        self.assertIn("1  records truncated\n", out)
        self.assertEqual(
            {"a.md": "Who?B", "b.md": "Who?O"}, read_json(self.output)
        )

    def test_plain_text_without_query(self):
        """The signature `text` of openkp takes the text alone."""
        self.input = self.path("a.md")
        with open(self.input, "w") as stream:
            stream.write("Jan paints.")

        def answer(text):
            return {"keyphrases": tf.constant([["Jan", ""]]), "text": text}

        signatures = {"serving_default": None, "text": answer}
        with _fake_signatures("openkp", signatures):
            self.assert_succeeds(self._predict())
        self.assertEqual(
            {"url": "a.md", "KeyPhrases": [["Jan"]]}, read_json(self.output)
        )

    def test_options_of_plain_texts(self):
        self.assert_fails(
            self._predict("--query=a"), "--query applies to plain texts"
        )
        self.input = self.path("a.md")
        with open(self.input, "w") as stream:
            stream.write("Jan paints.")
        for task, flags, message in (
            ("classify", ["--candidate=b"], "classify has no candidates"),
            ("answer", [], "a.md is a plain text, and answer answers"),
            ("openkp", ["--query=b"], "--query='b': openkp takes no query"),
            ("classify", ["--reading=text_field=b"], "without fields"),
        ):
            with _fake_model(task, None):
                self.assert_fails(self._predict(*flags), message)

    def test_nothing_usable(self):
        write_json(self.input, [{"_id": "x"}])
        self.assert_fails(
            self._predict("--skip_bad_records"),
            f"{self.input}: no usable record was found",
            "Skipped 1 bad records",
        )
        self.assertEmpty(os.listdir(os.path.dirname(self.output)))

    def test_full_disk_is_named(self):
        """A limit on the size of files simulates a full disk."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
        try:
            result = self._predict()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        self.assert_fails(result, f"predict failed: .*large: '{self.output}'.")
        self.assertEmpty(os.listdir(os.path.dirname(self.output)))

    def test_inputs_are_not_replaced(self):
        with open(self.input, "rb") as stream:
            before = stream.read()
        for flag in ("output", "metrics"):
            self.assert_fails(
                self._predict(f"--{flag}={self.input}", "--overwrite"),
                f"--{flag}={self.input} and --input={self.input} are the same",
            )
            inside = os.path.join(self.saved_model, "new")
            self.assert_fails(
                self._predict(f"--{flag}={inside}", "--overwrite"),
                f"{inside} is in --saved_model={self.saved_model}",
            )
        with open(self.input, "rb") as stream:
            self.assertEqual(before, stream.read())

    def test_input_that_does_not_fit(self):
        self.assert_fails(self._predict(f"--input={__file__}"), "is not JSON")
        self.assertFalse(os.path.exists(self.output))

    def _copy(self, **noted):
        """Copies the SavedModel with changed metadata."""
        broken = tempfile.mkdtemp(dir=self.directory)
        shutil.copytree(self.saved_model, broken, dirs_exist_ok=True)
        path = os.path.join(broken, exported.METADATA_FILE)
        note = exported.read_metadata(broken)
        write_json(path, {**note, **noted})
        return broken

    def _fails_at_once(self, saved_model, message):
        """Checks that the command fails with an error of one line."""
        result = self._predict(f"--saved_model={saved_model}")
        self.assert_fails(result, message)
        self.assertEqual(1, result[2].count("\n"), result[2])
        self.assertFalse(os.path.exists(self.output))

    def test_truncated_saved_model(self):
        broken = self._copy()
        data = "variables/variables.data-00000-of-00001"
        os.truncate(os.path.join(broken, data), 100)
        self._fails_at_once(broken, f"{broken} cannot be loaded .*export the")

    def test_any_changed_byte_of_a_graph(self):
        broken = self._copy()
        path = os.path.join(broken, "saved_model.pb")
        with open(path, "rb") as stream:
            graph = bytearray(stream.read())
        for place in range(0, len(graph), len(graph) // 5):
            graph[place] ^= 4
            with open(path, "wb") as stream:
                stream.write(graph)
            graph[place] ^= 4
            self._fails_at_once(broken, f"^Error: {path} is damaged")
        os.remove(os.path.join(broken, "variables", "variables.index"))
        with open(path, "wb") as stream:
            stream.write(graph)
        self._fails_at_once(broken, "variables.index is missing")

    def test_graph_without_checksum_that_cannot_be_read(self):
        broken = self._copy(files={})
        with open(os.path.join(broken, "saved_model.pb"), "wb") as stream:
            stream.write(b"no graph")
        self._fails_at_once(broken, f"{broken} cannot be loaded")

    def test_options_that_a_task_does_not_have(self):
        note = f"{exported.METADATA_FILE}: "
        self._fails_at_once(
            self._copy(options={"x": 1}), f"{note}unknown option 'x'"
        )


if __name__ == "__main__":
    tf.test.main()
