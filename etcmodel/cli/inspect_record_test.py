import os
import sys
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.cli import inspect_record
from etcmodel.inspection import attention_picture
from testing import tasks
from testing.tasks import run_cli


class InspectTest(tasks.CommandTestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(tasks.without_tracing())
        self.input, vocab_file = tasks.write_small_wikihop(self.directory, 3)
        self.like = self._preprocess("wikihop", vocab_file)
        self.output = self.path("picture.png")

    def _preprocess(self, task, vocab_file, *arguments, long_length=32):
        """Preprocesses the input; returns the directory for `like`."""
        folder = self.path(f"{task}_{long_length}")
        out = run_cli(
            "preprocess",
            f"--task={task}",
            f"--input={self.input}",
            f"--vocab_file={vocab_file}",
            f"--output_dir={folder}",
            f"--long_length={long_length}",
            "--global_length=16",
            *arguments,
        )
        self.assert_succeeds(out)
        return folder

    def _inspect(self, *arguments, draw=False, task="wikihop"):
        """Runs the command; draws only if `draw`."""
        original = attention_picture.draw_attention_picture
        with mock.patch.object(
            attention_picture,
            "draw_attention_picture",
            wraps=original if draw else None,
        ) as self.drawing:
            return run_cli(
                "inspect",
                f"--task={task}",
                f"--input={self.input}",
                f"--like={self.like}",
                f"--output={self.output}",
                *arguments,
            )

    def _side_inputs(self, *arguments):
        self.assert_succeeds(self._inspect(*arguments))
        return self.drawing.call_args.args[0]

    def test_picture_and_printed_parts(self):
        self.like = self._preprocess(
            "wikihop", f"{self.like}/vocab.txt", long_length=10
        )
        out = self.assert_succeeds(self._inspect(draw=True))
        lines = [" ".join(line.split()) for line in out.splitlines()]
        # 17 tokens: 4 in candidates, 2 in the query, 4 and 7 in documents. Both
        # documents are truncated to fit 10.
        self.assertContainsSubset(
            [
                "record: 0 (id small_0)",
                "query: city jan",
                "answer: paris",
                "candidates: 4, of which 0 cut",
                "documents: 2, of which 0 cut",
                "sentences: 3, of which 2 cut",
                "tokens: 17, of which 7 cut",
                "long length: 10",
            ],
            lines,
        )
        self.assertEqual(f"The picture is in {self.output}.", lines[-1])
        with open(self.output, "rb") as stream:
            self.assertEqual(b"\x89PNG", stream.read(4))

    def test_labels_and_title(self):
        self._inspect("--first_token=2")
        _, long_labels, global_labels, path = self.drawing.call_args.args
        self.assertEqual(
            "paris rome oslo bonn city jan jan is here . here is paris . jan "
            "is .",
            " ".join(long_labels),
        )
        self.assertEqual("sent 1.1", global_labels[-1])
        self.assertEqual(self.output, path)
        self.assertEqual(
            {"title": "wikihop: small_0", "first_long_token": 2},
            self.drawing.call_args.kwargs,
        )

    @parameterized.parameters(("2", "small_2"), ("small_1", "small_1"))
    def test_record_by_position_or_id(self, wanted, expected):
        _, out, _ = self._inspect(f"--record={wanted}")
        self.assertIn(f"(id {expected})", out)

    @parameterized.parameters(
        ("etc/wikihop", False), ("etc/wikihop_hard_g2l", True)
    )
    def test_hard_mask(self, experiment, is_hard):
        found = self._side_inputs(f"--experiment={experiment}")
        # <int>[1, long, 2 radius + 1]; the preset "base" has a radius of 84.
        self.assertEqual(169, found.l2l_att_mask.shape[-1])
        (mask,) = found.g2l_att_mask
        # Global token 7 stands for the sentence "Jan is here.", tokens 6 to 9.
        expected = range(6, 10) if is_hard else range(17)
        self.assertAllEqual(expected, np.flatnonzero(mask[7]))
        # Global tokens of candidates and the query attend to all tokens.
        self.assertAllEqual(np.ones([6, 17]), mask[:6, :17])

    def test_model_of_an_experiment(self):
        _, out, _ = self._inspect()
        self.assertRegex(out, r"experiment: +etc/wikihop\n")
        # In etc/wikihop_flat, local attention crosses paragraphs.
        flat = self._side_inputs("--experiment=etc/wikihop_flat").l2l_att_mask
        other = self._side_inputs("--experiment=etc/wikihop_hard_g2l")
        self.assertGreater(np.sum(flat), np.sum(other.l2l_att_mask))

    def test_own_documents_in_fields_of_other_names(self):
        """Draws paragraphs, which the record selects by their numbers."""
        tasks.write_json(
            self.input, [{"body": [["jan", "is"], ["here"]], "right": [1]}]
        )
        names = ("--text_field=body", "--label_field=right")
        self.like = self._preprocess(
            "select", f"{self.like}/vocab.txt", *names, "--units=paragraphs"
        )
        out = self.assert_succeeds(self._inspect(task="select"))
        self.assertRegex(out, r"selected: +1\n")
        _, _, global_labels, _ = self.drawing.call_args.args
        self.assertEqual(["[CLS]", "unit 0.0", "unit 1.0"], global_labels)

    @parameterized.parameters(
        ("--experiment=etc/hotpotqa", "is of the task hotpotqa, not wikihop"),
        ("--record=9", r"no record '9': the last one is 2 \(id sm"),
        ("--reading=id=x", "--reading=id=x: wikihop has no such option"),
        ("--first_token=17", "at most 16, the last long token of record small"),
    )
    def test_mistakes(self, argument, message):
        self.assert_fails(self._inspect(argument), message)
        self.drawing.assert_not_called()

    def test_other_files(self):
        """Draws a record without an answer; rejects a file without records."""
        records = tasks.read_json(self.input)
        del records[0]["answer"]
        for content, code, message in (
            (records, 0, "answer: +unknown"),
            ([], 1, f"{self.input} has no record '0'."),
        ):
            tasks.write_json(self.input, content)
            actual, out, err = self._inspect()
            self.assertEqual(code, actual)
            self.assertRegex(out + err, message)

    def test_no_module_shadows_one_of_python(self):
        folder = os.path.dirname(inspect_record.__file__)
        names = {os.path.splitext(name)[0] for name in os.listdir(folder)}
        self.assertEmpty(names & set(sys.stdlib_module_names))


if __name__ == "__main__":
    tf.test.main()
