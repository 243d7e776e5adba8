"""`demo`: runs all steps on a small generated corpus."""

from etcmodel.demo import demo

DESCRIPTION = """
Writes a corpus of questions about a fictional world, preprocesses it, trains a
small model, evaluates it, exports it, and answers a question with the exported
model. Takes a few minutes on two processor cores and needs no data. Ends with
exit code 1 if the model did not learn.
"""

EXAMPLE = """
python -m etcmodel demo --output_dir=demo_output
"""


Options = demo.Options


def run(options: Options) -> None:
    """Runs the demo, a sequence of the other commands.

    Raises:
        UserError: a step failed, or the model did not learn.
    """
    from etcmodel.cli import command_line
    from etcmodel.engine import paths

    paths.check(options)
    demo.main(options, command_line.main)
