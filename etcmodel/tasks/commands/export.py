"""`export`: a trained model becomes a SavedModel that takes raw text."""

import os

from absl import flags

from etcmodel.errors import UserError
from etcmodel.tasks import registry
from etcmodel.tasks.commands import training

DESCRIPTION = """
Writes a SavedModel for TensorFlow Serving or any program with TensorFlow and
tensorflow-text; this package is not needed to use it. Its signatures:

  serving_default      raw strings in, decoded answers out
  serialized_examples  records as `preprocess` writes them in, answers out
  features             integers in, logits out

Batches are padded with empty strings. Warm-up requests are included.
"""

EXAMPLE = """
python -m etcmodel export --model_dir=runs/1 --output_dir=saved_model
"""

REQUIRED = ("model_dir", "output_dir")


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the command.

    Args:
        flag_values: where to define them.
    """
    training.define_model_garden_flags(flag_values)
    flags.DEFINE_string(
        "output_dir", None, "The directory to make.", flag_values=flag_values
    )
    flags.DEFINE_string(
        "checkpoint",
        None,
        "The checkpoint: `best`, `last`, or a path. By default the best if "
        "there is one, else the last.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "vocab_file",
        None,
        "The vocabulary, if the run has no copy of it.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "overwrite",
        False,
        "Replace the output directory if it exists.",
        flag_values=flag_values,
    )


def find_checkpoint(model_dir: str, choice: str | None) -> str:
    """Finds the checkpoint to export.

    Args:
        model_dir: directory of the run.
        choice: `"best"`, `"last"`, a path, or None: the best, else the last.

    Returns:
        Path of the checkpoint.

    Raises:
        UserError: there is none.
    """
    import tensorflow as tf

    best = tf.train.latest_checkpoint(os.path.join(model_dir, "best_ckpt"))
    last = tf.train.latest_checkpoint(model_dir)
    if choice is None:
        found = best or last
    elif choice in ("best", "last"):
        found = {"best": best, "last": last}[choice]
    else:
        found = choice if tf.io.gfile.exists(choice + ".index") else None
        found = found or tf.train.latest_checkpoint(choice)
    if not found:
        raise UserError(
            f"No checkpoint was found (model_dir {model_dir}, checkpoint "
            f"{choice or 'best or last'}). Run `train` first."
        )
    return found


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command.

    Args:
        flag_values: the parsed flags.

    Raises:
        UserError: the run or its vocabulary cannot be used.
    """
    training.set_up_logging(flag_values.verbose)
    model_dir = flag_values.model_dir
    experiment = training.use_saved_params(flag_values, model_dir)
    entry, params = training.parse_params(flag_values, experiment)
    pipeline = registry.get_task_pipeline(entry.name)
    note = training.read_run(model_dir)
    records = note.get("records", {})
    vocab_file = flag_values.vocab_file
    if not vocab_file and "vocab_file" in records:
        vocab_file = os.path.join(model_dir, records["vocab_file"])
    if not vocab_file:
        raise UserError(
            f"{model_dir} has no copy of the vocabulary. Name it with "
            "--vocab_file."
        )
    checkpoint = find_checkpoint(model_dir, flag_values.checkpoint)

    import tensorflow as tf
    from official.core import task_factory

    from etcmodel.tasks import export_lib

    task_class = task_factory.get_task_cls(type(params.task))
    task = task_class(params.task, metadata=records)
    model = task.build_model()
    try:
        status = tf.train.Checkpoint(model=model).read(checkpoint)
        status.expect_partial().assert_existing_objects_matched()
    except (AssertionError, ValueError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"The checkpoint {checkpoint} does not fit the model that "
            f"{model_dir} and the flags describe: {reason}"
        ) from error
    features = dict(
        records.get("features", {}),
        long_length=task.long_length,
        global_length=task.global_length,
    )
    config = pipeline.feature_config(features)
    decoding = task.decoding_options()
    module, warmup_inputs = pipeline.build_serving_module(
        model, config, vocab_file, decoding
    )
    export_lib.export_saved_model(
        module,
        flag_values.output_dir,
        model_name=entry.name,
        metadata={
            "task": entry.name,
            "features": features,
            "decoding": decoding,
        },
        warmup_inputs=warmup_inputs,
        overwrite=flag_values.overwrite,
    )
    print(f"Wrote the SavedModel of {checkpoint} to {flag_values.output_dir}.")
