import contextlib
import io
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

import tensorflow as tf

from tools import compare_checkouts


def _example(**values):
    features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=x))
        for name, x in values.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


class DifferencesTest(unittest.TestCase):
    def compare(self, first, second, **options):
        found = compare_checkouts.Differences(**options)
        found.compare("x", first, second)
        return found

    def test_what_both_have_and_what_one_has(self):
        first = {"a": 1, "b": [1, 2, 3], "old": "x", "gone": 1, "path": "/1"}
        second = {"a": 2, "b": [1, 5, 6], "new": "x", "path": "/2"}
        found = self.compare(
            first, second, renames={"old": "new"}, ignored=["path"]
        )
        self.assertCountEqual(
            ["x: a: 1 -> 2", "x: b [1]: 2 -> 5"], found.different
        )
        self.assertEqual({"only the first has x: gone": 1}, found.only)
        found = self.compare([{"a": 1}] * 3, [{"b": 1}] * 2)
        self.assertEqual(["x: 3 -> 2 values"], found.different)
        self.assertEqual(
            {
                "only the first has x [N]: a": 2,
                "only the second has x [N]: b": 2,
            },
            found.only,
        )

    def test_tolerance_is_of_numbers(self):
        for first, second, is_same in (
            (1.0, 1.00001, True),
            (1e-9, 0.0, True),
            (1e6, 1e6 + 1, True),
            (1.0, 1.1, False),
            (1, "1", False),
            ([1.0], [1.1], False),
        ):
            found = self.compare(first, second, tolerance=1e-4)
            self.assertEqual(is_same, not found.different, (first, second))
        self.assertTrue(self.compare(1.0, 1.00001).different)


class FewRecordsTest(unittest.TestCase):
    def test_first_records_and_what_they_name(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "in" / "stories").mkdir(parents=True)
        (folder / "in" / "a.csv").write_text("id\n1\n2\n3\n")
        target = folder / "out" / "a.csv"
        compare_checkouts.few_records(folder / "in" / "a.csv", 2, target)
        self.assertEqual("id\n1\n2\n", target.read_text())
        self.assertTrue((folder / "out" / "stories").is_dir())


class CompareCheckoutsTest(unittest.TestCase):
    """With commands that are played: a weight, and what follows from it.

    A checkout's name is the weight that its training begins with, and what its
    `preprocess` stores.
    """

    def setUp(self):
        self.folder = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory())
        )
        self.commands = []
        case = compare_checkouts.Case(
            "wikihop", "w.json", "w.json", experiment="etc/wikihop"
        )
        self.enterContext(mock.patch.object(compare_checkouts, "CASES", [case]))
        self.enterContext(
            mock.patch.object(compare_checkouts.subprocess, "run", self.run_one)
        )
        (self.folder / "w.json").write_text("[1, 2]")
        (self.folder / "vocab").mkdir()
        (self.folder / compare_checkouts._VOCABULARY).touch()

    def run_one(self, command, cwd, **_):
        name, command = cwd.name, command[command.index("etcmodel") + 1 :]
        self.commands.append((name, *command))
        options = dict(
            x.removeprefix("--").split("=", 1) for x in command if "=" in x
        )
        output = options.get("output_dir") or options.get("model_dir")
        output = pathlib.Path(output or self.folder)
        output.mkdir(parents=True, exist_ok=True)
        if command[0] == "preprocess":
            gzip = tf.io.TFRecordOptions(compression_type="GZIP")
            path = str(output / "x.tfrecord.gz")
            with tf.io.TFRecordWriter(path, gzip) as writer:
                example = _example(ids=[int(name)], **{f"only_{name}": [1]})
                writer.write(example.SerializeToString())
            (output / "stats.json").write_text('{"tokens": 3}')
        elif command[0] == "train":
            steps = 4 if "train_steps=4" in options["params_override"] else 1
            before = output / "ckpt-1.index"
            weight = before.read_text() if steps == 4 else name
            (output / f"ckpt-{steps}.index").write_text(weight + "0" * steps)
            with tf.summary.create_file_writer(str(output)).as_default():
                tf.summary.scalar("loss", float(weight), step=steps)
                # It differs, and is not compared.
                tf.summary.scalar("steps_per_second", float(name), step=steps)
        elif command[0] == "evaluate":
            weight = (output / "ckpt-4.index").read_text()
            pathlib.Path(options["output"]).write_text(
                json.dumps({"f1": float(weight), "steps_per_second": name})
            )
        elif command[0] == "export":
            run = pathlib.Path(options["model_dir"])
            shutil.copy(run / "ckpt-4.index", output / "weight")
        elif command[0] == "predict":
            model = pathlib.Path(options["saved_model"])
            weight = (model / "weight").read_text()
            # The last one has other answers for the same weights.
            answer = weight if name != "3" else "wrong"
            pathlib.Path(options["output"]).write_text(f'"{answer}"\n"b"')
        return subprocess.CompletedProcess(command, int(name == "9"), "", "no")

    def compare(self, second, *arguments):
        printed = io.StringIO()
        (self.folder / second).mkdir(exist_ok=True)
        with contextlib.redirect_stdout(printed):
            code = compare_checkouts.main(
                [
                    str(self.folder / "1"),
                    str(self.folder / second),
                    f"--data={self.folder}",
                    f"--keep={self.folder / 'kept'}",
                    *arguments,
                ]
            )
        return code, printed.getvalue()

    def test_the_same_weights_and_different_answers(self):
        code, printed = self.compare("3")
        self.assertEqual(1, code)
        for step, count in (
            ("stored", 2),
            ("losses", 0),
            ("metrics", 0),
            ("answers", 1),
        ):
            self.assertIn(f": {step}: {count} differences", printed)
        self.assertIn("train: examples [0]: ids [0]: 1 -> 3", printed)
        self.assertIn(
            "only the second has stored: train: examples [N]", printed
        )
        self.assertIn("[0]: '100000' -> 'wrong'", printed)
        # What the first one has made is used again.
        self.commands.clear()
        self.assertEqual(0, self.compare("1", "--compare", "answers")[0])
        names = [command[:2] for command in self.commands]
        self.assertEqual(
            ["preprocess", "preprocess", "train", "train", "export", "predict"],
            [command for _, command in names],
        )

    def test_names_of_the_second_one(self):
        self.compare(
            "3",
            "--compare=losses",
            "--rename=train_data=records",
            "--rename=task.model.encoder=task.encoder",
        )
        first, second = (
            [" ".join(c) for c in self.commands if c[:2] == (name, "train")][0]
            for name in ("1", "3")
        )
        self.assertIn(" --train_data=", first)
        self.assertIn("task.model.encoder.initializer_range", first)
        self.assertIn(" --records=", second)
        self.assertIn("task.encoder.initializer_range", second)

    def test_a_command_that_fails(self):
        code, printed = self.compare("9", "--compare", "stored")
        self.assertEqual(1, code)
        self.assertIn("preprocess --task=wikihop", printed)
        self.assertIn("9:\nno", printed)


if __name__ == "__main__":
    unittest.main()
