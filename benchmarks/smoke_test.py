"""Runs every benchmark at its smallest size, and checks its columns.

Commands do not run in new processes: `preprocess` and `lift` run in this
process, `train` only checks its configuration, `evaluate` and `predict` write
fixed values, and `export` does nothing.
"""

import importlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from benchmarks import measure
from benchmarks import program
from etcmodel.checkpoints import bert_files
from etcmodel.feature_utils.text import tokenizers
from testing import models
from testing import small_berts
from testing import tasks

_ATTENTION = """
    --lengths=32 --radius=7 --heads=2 --head_size=4 --global_length=6
    --repeats=1 --dtypes=float32 --implementations=sparse,appendix_a,full
"""
_HOTPOTQA = "--train={hotpotqa} --dev={hotpotqa} --batch_size=4"
# Module -> flags of its runs, which together fill all columns. `_Files` writes
# the files named in braces.
CASES = {
    "benchmarks.attention": [f"{_ATTENTION} --passes=forward"],
    "benchmarks.capacity": ["--preset=tiny --lengths=64 --global_length=8"],
    "benchmarks.converted_models": [
        "--lengths=64 --formats=litert --preset=tiny --layers=1 --repeats=1"
    ],
    "benchmarks.hotpotqa_small": [
        f"{_HOTPOTQA} --vocab_file={{hotpotqa_vocab}} --steps=2 --copies=1",
        "--train={painter} --dev={painter} --lift={bert} --steps=2"
        " --lift_option=--local_radius=4 --pretrain_steps=2 --pseudo_steps=2"
        " --squad={squad}",
    ],
    "benchmarks.kills": ["--kills=1 --commands=preprocess"],
    "benchmarks.layer": [f"{_ATTENTION} --passes=train --modes=graph"],
    "benchmarks.learning_curves": [
        "--lift={bert} --train={squad} --dev={squad} --numbers=2,4"
        " --batch_size=1 --dtype=float32 --picture={curves} --results={line}"
    ],
    "benchmarks.openkp_small": [
        "--pages=6 --heldout=4 --steps=2",
        "--pages=6 --heldout=4 --lift={bert} --lift_steps=2",
    ],
    "benchmarks.own_documents": [
        "--part=authors --lift={bert} --seeds=1 --layers=1 --batch_size=2"
        " --train={labels} --dev={labels} --dtype=float32",
        "--part=select --lift={bert} --seeds=1 --dtype=float32 " + _HOTPOTQA,
        "--part=squad --lift={bert} --seeds=1 --folds=0 --train={squad}"
        " --batch_size=1 --dtype=float32",
        "--part=squad --lift={bert} --seeds=1 --train={squad} --dev={squad}"
        " --batch_size=1 --dtype=float32 --paragraphs=2",
    ],
    "benchmarks.pretraining_small": [
        "--corpus={pretrain} --vocab_file={pretrain_vocab} --lift={bert}"
        " --steps=2 --lift_steps=2"
    ],
    "benchmarks.read_twice": [
        "--segments=1 --preset=tiny --repeats=1 --mentions=2",
    ],
    "benchmarks.read_twice_books": [
        "--input={narrativeqa} --squad={squad} --heldout={squad}"
        " --lift={bert} --questions=6 --fewest=1"
        " --layers=0 --reader_steps=2 --story_steps=2 --novel_steps=2"
        " --seeds=1 --batch_size=1 --dtype=float32"
    ],
    "benchmarks.read_twice_by_heart": [
        "--input={narrativeqa} --vocab_file={reading_vocab}"
        " --stages=2x9x5x1e-3,4x1x5x1e-4xbest",
        "--task=triviaqa --input={triviaqa} --lift={bert} --variants=STS,SS",
    ],
    "benchmarks.read_twice_request": [
        "--story={story} --vocab_file={reading_vocab} --presets=tiny"
        " --repeats=1"
    ],
    "benchmarks.read_twice_small": ["--records=6 --heldout=4 --steps=2"],
    "benchmarks.sentence_splitting": [""],
    "benchmarks.serving": [
        "--lengths=64,128 --preset=tiny --layers=1 --repeats=1"
    ],
    "benchmarks.serving_beside": [
        "--models=small --layers=1 --lengths=32 --batches=2 --repeats=1"
    ],
    "benchmarks.serving_load": [
        "--preset=tiny --lengths=16,32 --texts=2 --requests=4 --clients=2"
        " --batch_sizes=2"
    ],
    "benchmarks.serving_start": ["--presets=tiny --length=32 --repeats=1"],
    "benchmarks.small_data": [
        "--lift={bert} --data={small} --sets=languages --dtype=float32"
        " --setting= --setting=1e-4,2,4"
    ],
    "benchmarks.small_weights": [
        "--length=64 --text=64 --preset=tiny --layers=1 --repeats=1"
        " --vocab_size=700"
    ],
    "benchmarks.start_up": [
        "--kerases=2 --layers=1 --length=8 --global_length=2 --models=etcmodel"
    ],
    "benchmarks.structure": [
        "--question_kinds=fixed --variants=full,flat --num_train=8"
        " --num_heldout=4 --num_layers=1 --batch_size=4 --steps=2"
    ],
    "benchmarks.training_step": [
        "--experiment=etc/wikihop --records={records} --batch_size=3"
        " --repeats=1 --options=--small"
    ],
}


_PAINTER = {
    "_id": "a",
    "question": "Where does Jan live?",
    "context": [
        [
            "Jan",
            [
                "The painter was born in 1901 in a small town.",
                " He sings.",
                " It rains.",
            ],
        ],
        ["Vltava", ["A river through the region of South Bohemia."]],
        ["Krakow", ["Short."]],
    ],
    "answer": "Krakow",
    "supporting_facts": [["Krakow", 0]],
}


class _Files:
    """Writes the data files that a case refers to, on demand."""

    def __init__(self, folder: str):
        self._folder = pathlib.Path(folder)

    def __getitem__(self, name: str) -> str:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        if name == "records":
            return models.small_records()
        if name == "bert":
            return self._write_bert(str(folder))
        if name == "small":
            (folder / "languages").mkdir(exist_ok=True)
            for language in ("de", "ro"):
                path = folder / "languages" / f"{language}.txt"
                path.write_text("one\n" * 6)
            return str(folder)
        if name == "curves":
            return str(folder / "curves.png")
        if name == "squad":
            return self._write_squad(str(folder / "squad.json"))
        lines = [
            json.dumps({"paragraphs": ["red brick."] * 9, "label": label})
            for label in "xyxy"
        ]
        texts = {
            "labels": "\n".join(lines),
            "painter": json.dumps([_PAINTER]),
            "story": "Jan lives in Oslo. " * 30,
            "line": json.dumps({"name": "answer", "trained": 9, "f1": 0.5}),
        }
        if name in texts:
            path = folder / f"{name}.content"
            path.write_text(texts[name])
            return str(path)
        task = name.removesuffix("_vocab")
        task = {
            "narrativeqa": "read_twice_narrativeqa",
            "reading": "read_twice_narrativeqa",
            "triviaqa": "read_twice_triviaqa",
        }.get(task, task)
        write, _ = tasks.SMALL_RECORDS[task]
        return write(str(folder), 6)[name.endswith("_vocab")]

    def _write_bert(self, folder):
        """Writes a BERT of two narrow layers, with a vocabulary of one word."""
        tokens = [*tokenizers.WORDPIECE_RESERVED_TOKENS, "one"]
        small_berts.write_vocab(os.path.join(folder, "vocab.txt"), tokens)
        shapes = {
            **small_berts.SHAPES,
            **small_berts.HEAD,
            "embeddings.position_embeddings": (400, 8),
        }
        small_berts.write_hugging_face(
            folder,
            small_berts.make_weights(shapes=shapes),
            *("bert.", "cls.predictions.transform."),
        )
        bert_files.read_bert(folder)
        return folder

    def _write_squad(self, path):
        """Writes enough articles for each fold to have some."""
        answers = [{"text": "Brno", "answer_start": 13}]
        articles = [
            {
                "title": f"T{i}",
                "paragraphs": [
                    {
                        "context": f"Jan lives in Brno {i}.",
                        "qas": [
                            {
                                "id": f"q{i}",
                                "question": "Where?",
                                "answers": answers,
                            }
                        ],
                    }
                ],
            }
            for i in range(12)
        ]
        tasks.write_json(path, {"version": "1.1", "data": articles})
        return path


class _InThisProcess:
    """Replaces `measure.StepProcess`; runs the step in this process."""

    def __init__(self, make_step, *args):
        self._step = make_step(*args)
        self.warm_up_seconds = measure.warm_up(self._step)

    def milliseconds(self):
        return 1e3 * measure.warm_up(self._step)

    def peak_megabytes(self):
        return 12.5

    def close(self):
        pass


class SmokeTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        for module, name, stand_in in (
            (measure, "StepProcess", _InThisProcess),
            (measure, "in_fresh_process", lambda call, *args: call(*args)),
            (subprocess, "run", self._run_command),
        ):
            self.enterContext(mock.patch.object(module, name, stand_in))

    def _run_command(self, command, check):
        """Replaces `subprocess.run` for a command of the package."""
        del check
        name, *options = command[command.index("etcmodel") + 1 :]
        given = dict(x.split("=", 1) for x in options if "=" in x)
        if name == "evaluate":
            values = {
                x: 0.5
                for x, y in self.program.columns.items()
                if y[-1:] in "f%"
            }
            values["accuracy"] = 0.5
            tasks.write_json(given["--output"], values)
        elif name == "predict":
            text = pathlib.Path(given["--input"]).read_text()
            ids = re.findall(r'"id": ?"([^"]+)"', text)
            tasks.write_json(given["--output"], dict.fromkeys(ids, "Brno"))
        elif name != "export":
            if name == "train":
                # Earlier stages did not train, so there is no checkpoint.
                options = [x for x in options if not x.startswith("--init_")]
                options.append("--print_config")
            code, _, error = tasks.run_cli(name, *options)
            self.assertEqual(0, code, error)
        return subprocess.CompletedProcess(command, 0)

    @parameterized.parameters(*CASES)
    def test_runs(self, name):
        self.program = importlib.import_module(name).PROGRAM
        files = _Files(self.enterContext(tempfile.TemporaryDirectory()))
        found = set()
        for number, case in enumerate(CASES[name]):
            arguments = [
                re.sub(r"\{(\w+)\}", lambda x: files[x[1]], argument)
                for argument in case.split()
            ]
            output = os.path.join(self.get_temp_dir(), f"{name}{number}")
            values = program.parse(
                self.program, *arguments, f"--output={output}"
            )
            lines = program.run(self.program, values)
            self.assertNotEmpty(lines)
            with open(os.path.join(output, "results.jsonl")) as stream:
                self.assertEqual(
                    [json.loads(json.dumps(x)) for x in lines],
                    [json.loads(x) for x in stream],
                )
            with open(os.path.join(output, "table.txt")) as stream:
                self.assertLen(stream.readlines(), 1 + len(lines))
            found.update(*lines)
        self.assertContainsSubset(self.program.columns, found)

    def test_no_benchmark_is_missing(self):
        """All benchmarks are in `CASES`, except those with their own test."""
        folder = pathlib.Path(program.__file__).parent
        found = {
            f"benchmarks.{path.stem}"
            for path in folder.glob("*.py")
            if "\nPROGRAM = " in path.read_text("utf-8")
            and not (folder / f"{path.stem}_test.py").exists()
        }
        self.assertEqual(found, set(CASES))


if __name__ == "__main__":
    tf.test.main()
