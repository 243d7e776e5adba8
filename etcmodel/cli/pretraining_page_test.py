"""Runs the commands of the page on pre-training, with tiny sizes."""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import tempfile

import tensorflow as tf

from testing import tasks
from testing.small_berts import make_bert

_PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/pretraining.md"
_STEPS = 2
_TRAINER = ",".join(
    f"trainer.{name}={_STEPS}"
    for name in (
        "train_steps",
        "steps_per_loop",
        "summary_interval",
        "checkpoint_interval",
        "validation_interval",
    )
)
_SIZES = ["--long_length=32", "--global_length=16", "--num_shards=2"]
# Command -> flags that make it fast.
_SMALL = {
    "preprocess": _SIZES,
    "train": [f"--params_override={_TRAINER}", "--batch_size=4"],
    "lift": [],
    "evaluate": [],
    "export": [],
    "predict": [],
}


class PretrainingPageTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)

    def _write_files(self):
        """Writes all files that the page's commands read."""
        path, vocab_file = tasks.write_small_wikihop(".", 8)
        for name in ("train.json", "dev.json"):
            shutil.copy(path, name)
        self.assertEqual("vocab.txt", os.path.relpath(vocab_file))
        os.mkdir("texts")
        text = "Jan is here.\n\nHere is Rome. " * 4
        for name in "ab":
            with open(f"texts/{name}.txt", "w") as stream:
                stream.write(text)
        with open("held_out.jsonl", "w") as stream:
            stream.write('{"text": "' + "Jan is here. " * 8 + '"}\n')
        os.mkdir("bert-base-uncased")
        make_bert("bert-base-uncased")

    def _one_layer(self):
        """Writes a config file that sets one layer, fewer than `--small`."""
        model = {"encoder": {"num_hidden_layers": 1}}
        tasks.write_json("small.json", {"task": {"model": model}})
        return "small.json"

    def test_its_commands_run(self):
        self._write_files()
        text = _PAGE.read_text("utf-8")
        blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
        commands = [x for block in blocks for x in block.strip().split("\n")]
        self.assertLen(commands, 12)
        for line in commands:
            start, (command, *arguments) = line[:18], shlex.split(line)[3:]
            self.assertEqual("python -m etcmodel", start)
            if command == "train" and not any("init" in x for x in arguments):
                arguments += ["--small", f"--config_file={self._one_layer()}"]
            with contextlib.ExitStack() as stack:
                if command == "preprocess":
                    stack.enter_context(tasks.without_tracing())
                code, _, err = tasks.run_cli(
                    command, *arguments, *_SMALL[command]
                )
            self.assertEqual((0, ""), (code, err), line)
        answers = tasks.read_json("predictions.json")
        self.assertLen(answers, 8)


if __name__ == "__main__":
    tf.test.main()
