"""Tests of `ask`, with a model that chooses the first candidate."""

import ast
import contextlib
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.demo import ask
from testing import tasks
from testing.helpers import write_file


def _record(*candidates, **more):
    return {
        "query": "city jan",
        "candidates": list(candidates),
        "supports": ["Jan is here."],
        **more,
    }


class AskTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.saved_model = tasks.write_small_saved_model(cls.root)
        cls.model = tf.saved_model.load(cls.saved_model)

    def _write(self, content):
        return write_file(self, content, "questions.json")

    def _main(self, *arguments, typed=()):
        """Runs the program; returns what it prints."""
        with (
            mock.patch.object(sys, "argv", ["ask.py", *arguments]),
            mock.patch.object(sys, "stdin", io.StringIO("\n".join(typed))),
            contextlib.redirect_stdout(io.StringIO()) as output,
        ):
            ask.main()
        return output.getvalue()

    def test_imports_only_tensorflow(self):
        tree = ast.parse(pathlib.Path(ask.__file__).read_text("utf-8"))
        imported = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module)
        tops = {name.split(".")[0] for name in imported}
        self.assertEqual(
            {"tensorflow", "tensorflow_text"}, tops - sys.stdlib_module_names
        )

    def test_answers_more_than_a_batch_in_order(self):
        records = [_record(f"x{i}", *["y"] * (i % 3)) for i in range(70)]
        answers = ask.answer(self.model, records)
        self.assertEqual([f"x{i}" for i in range(70)], [a for a, _ in answers])
        self.assertEqual(1.0, answers[69][1][0])
        self.assertEmpty(ask.answer(self.model, []))

    def test_shows_probabilities_of_candidates_but_not_of_padding(self):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            ask.show(_record("rome", "oslo"), "oslo", [0.25, 0.75, 0.0])
        self.assertEqual(
            "\n  | Jan is here.\n  |\n  Question: city jan\n"
            "      25.0%  rome\n      75.0%  oslo\n  Answer:   oslo\n",
            output.getvalue(),
        )

    def test_reads_one_record_or_a_list(self):
        record = _record("rome")
        for content in (record, [record]):
            self.assertEqual([record], ask.read_records(self._write(content)))

    @parameterized.parameters(
        ("{", "questions.json cannot be read: Expecting"),
        (
            [_record("rome"), {"query": "a", "supports": ["b"]}],
            "questions.json, record 1: 'candidates' is None; expected a list",
        ),
        ([[1]], r"questions.json, record 0 is \[1\]; expected"),
        ([], "questions.json has no question; expected"),
        ({"query": 7}, "record 0: 'query' is 7; expected a string"),
        (
            _record("b") | {"supports": [1]},
            r"record 0: 'supports' is \[1\]; expected a list of strings",
        ),
        (_record(), r"record 0: 'candidates' is \[\]; expected a list"),
    )
    def test_bad_files_end_the_program(self, content, message):
        with self.assertRaisesRegex(SystemExit, message):
            ask.read_records(self._write(content))
        with self.assertRaisesRegex(SystemExit, "/no/such cannot be read"):
            ask.read_records("/no/such")

    def test_pads_lists_of_any_length(self):
        for rows, expected in (
            ([["a"], ["b", "c"]], [[b"a", b""], [b"b", b"c"]]),
            ([["a", "b"], []], [[b"a", b"b"], [b"", b""]]),
        ):
            self.assertAllEqual(expected, ask.pad(rows))
        padded = ask.pad([[], []])
        self.assertEqual((tf.string, [2, 0]), (padded.dtype, padded.shape))

    def test_answers_a_file_and_counts(self):
        path = self._write(
            [
                _record("rome", "oslo", answer=" Rome"),
                _record("rome", "oslo", answer="oslo"),
                _record("bonn", "oslo"),
            ]
        )
        output = os.path.join(self.get_temp_dir(), "answers.json")
        printed = self._main(self.saved_model, path, "--output", output)
        self.assertIn("1 of 2 answers right", printed)
        self.assertEqual(3, printed.count("Answer:"))
        with open(output, encoding="utf-8") as file:
            written = json.load(file)
        answers = ["rome", "rome", "bonn"]
        expected = {"answers": answers, "num_right": 1, "num_known": 2}
        self.assertEqual({path: expected}, written["files"])
        # Records of long files are counted, not printed.
        path = self._write([_record("rome", answer="rome")] * 4)
        printed = self._main(self.saved_model, path)
        self.assertNotIn("Answer:", printed)
        self.assertIn("4 of 4 answers right", printed)

    def test_keyboard(self):
        printed = self._main(
            self.saved_model,
            typed="Jan is in Oslo.|Hi.||oslo|rome||city jan".split("|"),
        )
        self.assertIn("  | Jan is in Oslo.\n", printed)
        self.assertIn("Question: city jan\n", printed)
        self.assertEndsWith(printed, "Answer:   oslo\n")

    def test_end_of_input(self):
        with (
            mock.patch.object(sys, "stdin", io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            self.assertEqual(
                {"supports": [""], "candidates": [""], "query": ""},
                ask.type_record(),
            )

    def test_not_a_saved_model(self):
        with self.assertRaisesRegex(SystemExit, "/no/such is not a SavedModel"):
            self._main("/no/such")


if __name__ == "__main__":
    tf.test.main()
