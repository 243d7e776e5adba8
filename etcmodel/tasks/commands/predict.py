"""`predict`: answers the questions of a data file with a SavedModel."""

import itertools

from absl import flags

from etcmodel.datasets import files
from etcmodel.errors import BadRecords
from etcmodel.errors import UserError
from etcmodel.tasks import registry
from etcmodel.tasks.atomic import atomic_file

DESCRIPTION = """
Reads a data file in the official format of the task, sends its raw text through
a SavedModel, and writes the answers in the official submission format:

  hotpotqa  {"answer": {id: text}, "sp": {id: [[title, sentence], ...]}}
  nq        {"predictions": [...]}, with scores
  wikihop   {id: answer}

Where the file has answers, the official metrics are printed. The output file
appears only when it is whole.
"""

EXAMPLE = """
python -m etcmodel predict --saved_model=saved_model --input=dev.json \\
    --output=predictions.json
"""

REQUIRED = ("saved_model", "input", "output")


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the command.

    Args:
        flag_values: where to define them.
    """
    flags.DEFINE_string(
        "saved_model",
        None,
        "The SavedModel: the --output_dir of `export`.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "input",
        None,
        "The data files in the task's official format, plain or gzipped: "
        "names, or patterns such as nq-dev-*.jsonl.gz, with commas between.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "output", None, "The file to write.", flag_values=flag_values
    )
    flags.DEFINE_integer(
        "batch_size",
        8,
        "How many records are answered at once.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "skip_bad_records",
        False,
        "Leave records out that cannot be used, and count them, instead of "
        "ending with an error.",
        flag_values=flag_values,
    )


def load_saved_model(path: str):
    """Loads a SavedModel that `export` wrote.

    Args:
        path: its directory.

    Returns:
        Pair of the loaded model and its metadata.

    Raises:
        UserError: it is no such SavedModel.
    """
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  The graph uses its operations.

    from etcmodel.tasks import export_lib

    metadata = export_lib.read_export_metadata(path)
    try:
        return tf.saved_model.load(path), metadata
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise UserError(f"{path} cannot be loaded: {error}") from error


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command.

    Args:
        flag_values: the parsed flags.

    Raises:
        UserError: the SavedModel or the data cannot be used.
    """
    paths = files.find(flag_values.input)
    model, metadata = load_saved_model(flag_values.saved_model)
    import tensorflow as tf

    from etcmodel.tasks import export_lib
    from etcmodel.tasks.progress import file_progress

    pipeline = registry.get_task_pipeline(metadata["task"])
    dataset = pipeline.dataset
    answer = model.signatures[export_lib.SERVING_DEFAULT]
    bad_records = BadRecords(flag_values.skip_bad_records)
    predictions, gold = {}, {}
    with (
        atomic_file(flag_values.output) as stream,
        file_progress(paths, "Predicting") as progress,
    ):
        records = dataset.FORMAT.read(
            paths, "predict", bad_records, progress.at
        )
        while batch := list(itertools.islice(records, flag_values.batch_size)):
            inputs = {
                name: tf.constant(value)
                for name, value in pipeline.serving_inputs(batch).items()
            }
            outputs = {
                name: value.numpy() for name, value in answer(**inputs).items()
            }
            pipeline.collect(
                batch, outputs, predictions, metadata.get("decoding", {})
            )
            for record in batch:
                if dataset.gold(record) is not None:
                    gold[record.id] = dataset.gold(record)
            progress.done(len(batch))
        if not predictions:
            raise UserError(
                f"{flag_values.input}: no usable record was found. "
                f"{bad_records.summary()}"
            )
        dataset.write_predictions(predictions, stream)
    if bad_records.total:
        print(bad_records.summary())
    print(f"Wrote {len(predictions)} answers to {flag_values.output}.")
    if gold:
        for name, value in dataset.score(predictions, gold).items():
            print(f"{name}: {value:.4f} ({len(gold)} records with an answer)")
