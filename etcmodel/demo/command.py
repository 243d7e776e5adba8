"""`demo`: runs everything once on a small generated corpus."""

import dataclasses

from absl import flags

from etcmodel.pipeline.options import option

DESCRIPTION = """
Writes a corpus of questions about a fictional world, preprocesses it, trains a
small model, evaluates it, exports it, and answers a question with the exported
model. Takes a few minutes on two processor cores and needs no data. Ends with
exit code 1 if the model did not learn.
"""

EXAMPLE = """
python -m etcmodel demo --output_dir=demo_output
"""


@dataclasses.dataclass(kw_only=True)
class Flags:
    """Flags of the demo.

    Attributes:
        output_dir: directory for the corpus, the model and the logs. Replaces
            the files of an earlier demo.
        question: a JSON file with your own question for the exported model:
            {"query": ..., "candidates": [...], "supports": [...]}.
        num_train: number of training records.
        num_heldout: number of held-out records.
        train_steps: number of training steps.
        min_accuracy: minimum accuracy on the held-out records; below it the
            demo fails.
        seed: seed of the corpus and the training.
    """

    output_dir: str = option("demo_output", path="demo")
    question: str | None = option(None, path="file")
    num_train: int = 4000
    num_heldout: int = 400
    train_steps: int = 275
    min_accuracy: float = option(0.95, max_value=1.0)
    seed: int = option(1, min_value=0)


def run(flag_values: flags.FlagValues) -> None:
    """Runs the demo.

    Raises:
        UserError: a step failed, or the model did not learn.
    """
    from etcmodel.demo import demo

    demo.main(Flags(**{x: flag_values[x].value for x in flag_values}))
