"""`demo`: everything at once on a small generated corpus."""

from absl import flags

DESCRIPTION = """
Writes a corpus of questions about a fictional world, preprocesses it, trains a
small model, evaluates it, exports it, and answers a question with the exported
model. Takes a few minutes on two processor cores and needs no data. Ends with
exit code 1 if the model did not learn.
"""

EXAMPLE = """
python -m etcmodel demo --output_dir=demo_output
"""

REQUIRED = ()


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the command.

    Args:
        flag_values: where to define them.
    """
    flags.DEFINE_string(
        "output_dir",
        "demo_output",
        "Where the corpus, the model and the logs are left. What an earlier "
        "demo left there is replaced.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "question",
        None,
        "A JSON file with a question of your own for the exported model: "
        '{"query": ..., "candidates": [...], "supports": [...]}.',
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "num_train",
        4000,
        "Number of training records.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "num_heldout",
        400,
        "Number of held-out records.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "train_steps",
        275,
        "Number of training steps.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "min_accuracy",
        0.95,
        "Accuracy on the held-out records below which the demo has failed.",
        lower_bound=0.0,
        upper_bound=1.0,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "seed", 1, "Of the corpus and the training.", flag_values=flag_values
    )


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command.

    Args:
        flag_values: the parsed flags.

    Raises:
        UserError: a step failed, or the model did not learn.
    """
    from etcmodel.demo import demo

    demo.main(
        demo.DemoConfig(
            **{name: flag_values[name].value for name in flag_values}
        )
    )
