"""Runs each notebook from top to bottom in a new kernel."""

import importlib
import inspect
import os
import pathlib
import re

import nbclient
import nbformat
import tensorflow as tf
from absl.testing import parameterized

from testing import helpers

_FOLDER = pathlib.Path(__file__).parent
_MAX_CELLS = 14
# TensorFlow logs that it compiles, whatever the level of logs.
_XLA = r"(?m)^WARNING: All log messages.*\n|^I0000.*Compiled cluster.*\n"


def _read(name):
    return nbformat.read(_FOLDER / f"{name}.ipynb", as_version=4)


def _run(name, **environment):
    """Returns the notebook with the outputs of a new run."""
    notebook = _read(name)
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": _FOLDER}}
    ).execute(env={**os.environ, **environment})
    return notebook


def _outputs(notebook):
    """Returns the kind and the number of lines of each output."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                continue
            kinds = sorted(output.get("data", ())) or [output.output_type]
            found.append((kinds, len(output.get("text", "").splitlines())))
    return found


class NotebooksTest(tf.test.TestCase, parameterized.TestCase):
    def _check(self, notebook, name, last_output):
        """The run has the stored outputs, and no errors, warnings or logs."""
        stored = _read(name)
        self.assertLessEqual(len(stored.cells), _MAX_CELLS)
        self.assertNotEmpty(_outputs(stored))
        self.assertEqual(_outputs(stored), _outputs(notebook))
        *_, last = (x for x in notebook.cells if x.get("outputs"))
        self.assertRegex(last.outputs[-1].text, last_output)
        for cell in notebook.cells:
            for output in cell.get("outputs", ()):
                if output.get("name") == "stderr":
                    text = re.sub(_XLA, "", output.text)
                    self.assertNotRegex(text, "(?i)warning|error|I0000")

    @parameterized.parameters(
        ("classify_documents", "^Accuracy on 12 others:"),
        ("select_evidence", "^Average precision:"),
        ("answer_questions", "^Exact match on 12 others:"),
    )
    def test_program(self, name, last_output):
        notebook = _run(name)
        # The notebook contains the code of the program with the same name.
        program = importlib.import_module(f"examples.{name}").main
        *lines, _ = inspect.getsource(program).splitlines()[2:]
        code = "\n".join(x.source for x in notebook.cells if "outputs" in x)
        self.assertContainsSubset(
            [x.strip() for x in lines], [x.strip() for x in code.splitlines()]
        )
        self._check(notebook, name, last_output)

    @parameterized.parameters("0", "1")
    def test_compose_layers(self, legacy):
        """The same cells run under Keras 3 and Keras 2."""
        name = "compose_layers"
        notebook = _run(name, TF_USE_LEGACY_KERAS=legacy)
        self._check(notebook, name, r"Outputs: \(None, 4000, 32\)")
        text = str(notebook)
        (accuracy,) = re.findall(r"sentences of 12 test texts: (\d+)%", text)
        self.assertGreater(int(accuracy), 90)

    @parameterized.parameters(
        ("table_layout", "of 200 new tables: ", "^Cells that count: "),
        ("read_twice_book", "right about ", "^Books of 100 pages"),
    )
    def test_structure_helps(self, name, what, last_output):
        """The first accuracy is near 100 %, the second one near chance."""
        notebook = _run(name)
        self._check(notebook, name, last_output)
        found = re.findall(rf"{what}(\d+)\.\d%", str(notebook))
        with_structure, without = map(int, found[:2])
        self.assertGreater(with_structure, 95)
        self.assertLess(without, 80)

    def test_attention(self):
        self._check(_run("attention"), "attention", "Layer 1, head 1: ")

    def test_lift_and_fine_tune(self):
        name = "lift_and_fine_tune"
        notebook = _run(name, BERT=helpers.real_bert())
        self._check(notebook, name, r"^\w+ 0\.\d\d\n")
        found = re.findall(r"Accuracy on 36 test texts: (\d+)%", str(notebook))
        lifted, from_random = map(int, found)
        self.assertGreater(lifted, from_random)


if __name__ == "__main__":
    tf.test.main()
