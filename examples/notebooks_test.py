"""Runs each notebook from top to bottom in a new kernel."""

import importlib
import inspect
import pathlib

import nbclient
import nbformat
import tensorflow as tf
from absl.testing import parameterized

_FOLDER = pathlib.Path(__file__).parent


class NotebooksTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("classify_documents", "Accuracy on 12 others:"),
        ("select_evidence", "Average precision:"),
        ("answer_questions", "Exact match on 12 others:"),
    )
    def test_runs(self, name, last_output):
        """The notebook runs without errors, warnings or logs."""
        notebook = nbformat.read(_FOLDER / f"{name}.ipynb", as_version=4)
        nbclient.NotebookClient(
            notebook, timeout=300, resources={"metadata": {"path": _FOLDER}}
        ).execute()
        # The notebook contains the code of the program with the same name.
        program = importlib.import_module(f"examples.{name}").main
        *lines, _ = inspect.getsource(program).splitlines()[2:]
        code = "\n".join(x.source for x in notebook.cells if "outputs" in x)
        self.assertContainsSubset(
            [x.strip() for x in lines], [x.strip() for x in code.splitlines()]
        )
        *_, last = (cell for cell in notebook.cells if "outputs" in cell)
        self.assertStartsWith(last.outputs[-1].text, last_output)
        for cell in notebook.cells:
            for output in cell.get("outputs", ()):
                if output.get("name") == "stderr":
                    self.assertNotRegex(output.text, "(?i)warning|error|I0000")


if __name__ == "__main__":
    tf.test.main()
