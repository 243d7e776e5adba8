"""`export`: a trained model becomes a SavedModel that takes raw text."""

import dataclasses
import os

from absl import flags

from etcmodel.cli import training
from etcmodel.errors import UserError
from etcmodel.pipeline.options import option
from etcmodel.tasks import registry
from etcmodel.training import runs

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


@dataclasses.dataclass(kw_only=True)
class Flags(runs.CheckpointFlags):
    """The flags.

    Attributes:
        output_dir: the directory to make.
        vocab_file: the vocabulary, if the run has no copy of it.
        overwrite: replace the output directory if it exists.
    """

    # A run, unlike elsewhere.
    model_dir: str = option(path="run")
    output_dir: str = option(path="new_directory")
    vocab_file: str | None = option(None, path="file")
    overwrite: bool = False


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command."""
    model_dir = flag_values.model_dir
    experiment = runs.use_saved_params(flag_values, model_dir)
    registry.get_with_answers(registry.task_of_experiment(experiment).name)
    records = runs.read(model_dir).get("records", {})
    vocab_file = flag_values.vocab_file
    if not vocab_file and "vocab_file" in records:
        vocab_file = os.path.join(model_dir, records["vocab_file"])
    if not vocab_file:
        raise UserError(
            f"{model_dir} has no copy of the vocabulary. Name it with "
            "--vocab_file."
        )
    runs.check_checkpoint(model_dir, flag_values.checkpoint)
    if records:
        runs.check_vocabulary(vocab_file, records, model_dir)
    spec, params = training.parse_params(flag_values, experiment)
    checkpoint = runs.find_checkpoint(model_dir, flag_values.checkpoint)
    runs.use_tuned(spec, params.task, checkpoint, model_dir)

    import tensorflow as tf
    from official.core import task_factory

    from etcmodel.feature_utils.text import tokenizer_settings
    from etcmodel.serving import saved_model as export_lib
    from etcmodel.serving import signatures
    from etcmodel.training import run_directory

    task = task_factory.get_task(params.task, metadata=records)
    model = task.build_model()
    try:
        with run_directory.restoring(checkpoint):
            status = tf.train.Checkpoint(model=model).read(checkpoint)
        status.expect_partial().assert_existing_objects_matched()
    except (AssertionError, ValueError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"The checkpoint {checkpoint} does not fit the model that "
            f"{model_dir} and the flags describe: {reason}"
        ) from error
    sizes = dict(task.sizes)
    settings = records.get("tokenizer")
    preprocessor = spec.make_preprocessor(
        spec.make_preprocessing_config(sizes),
        vocab_file,
        settings and tokenizer_settings.TokenizerSettings.from_dict(settings),
    )
    module, warmup_inputs = signatures.make_serving_module(
        model, preprocessor, task.task_model
    )
    export_lib.export_saved_model(
        module,
        flag_values.output_dir,
        model_name=spec.name,
        metadata={
            "task": spec.name,
            "preprocessing_config": sizes,
            "options": dataclasses.asdict(task.task_model.options),
            "has_queries": records.get("has_queries", False),
        },
        warmup_inputs=warmup_inputs,
        overwrite=flag_values.overwrite,
    )
    print(f"Wrote the SavedModel of {checkpoint} to {flag_values.output_dir}.")
