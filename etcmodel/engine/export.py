"""Writes a trained model as a SavedModel, or for LiteRT or ONNX."""

import dataclasses
from typing import NamedTuple

from etcmodel.engine import evaluate
from etcmodel.engine import paths
from etcmodel.engine import rounded_metrics
from etcmodel.engine import run_options
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.options import option
from etcmodel.serving import exported
from etcmodel.tasks import registry
from etcmodel.training import runs

FORMATS = ("saved_model", *exported.CONVERTED)


@dataclasses.dataclass(kw_only=True)
class Options(run_options.CheckpointOptions):
    """Options of `export`.

    Attributes:
        output_dir: the directory to create.
        vocab_file: the vocabulary, if the run has no copy of it.
        format: kind of the model: "saved_model" takes raw text; "litert" and
            "onnx" take one row of token ids, with fixed lengths.
        overwrite: replace the output directory if it exists.
        weights: dtype of stored matrices: "float32"; "bfloat16", half the
            size; or "int8", a quarter of it.
        validation_data: records to measure the model on, as for `evaluate`. The
            model card states the metrics. Nothing is written if the main metric
            is more than `tolerance` worse than with float32.
        tolerance: how far the main metric may fall, as a share of its scale:
            0.01 is one point of a hundred. Less than 1.
        license: licence of the model, for its card: the name that the Hugging
            Face hub uses, such as apache-2.0.
        language: code of a language of the training data, such as en, for the
            model card; may be given several times.
    """

    # Unlike `evaluate`, `export` needs all files of the run.
    model_dir: str = option(path="run")
    output_dir: str = option(path="new_directory")
    vocab_file: str | None = option(None, path="file")
    format: str = option("saved_model", one_of=FORMATS)
    overwrite: bool = False
    weights: str = option("float32", one_of=("float32", "bfloat16", "int8"))
    validation_data: str | None = option(None, path="records")
    tolerance: float = 0.01
    license: str | None = None
    language: list[str] | None = option(None, several=True)


class Result(NamedTuple):
    """Files that `export` wrote and read.

    Attributes:
        saved_model: the directory, which has a SavedModel unless another
            `format` was chosen.
        checkpoint: path of the checkpoint that was exported.
        measured: metrics on the validation data; None without such data.
    """

    saved_model: str
    checkpoint: str
    measured: evaluate.Rounded | None = None


def export(options: Options, reporter: Reporter | None = None) -> Result:
    """Exports a checkpoint of a run.

    Works with Keras 2 and 3; overriding the run's configuration needs Keras 2.

    Raises:
        UserError: an option or a file of the run cannot be used.
    """
    reporter = reporter or Reporter("quiet")
    options_lib.check(options)
    paths.check(options)
    _check_format(options)
    rounded_metrics.check_tolerance(options)
    experiment, configured = run_options.use_saved_params(options, reporter)
    spec = registry.task_of_experiment(experiment)
    registry.get_with_answers(spec.name)
    vocab_file = runs.find_vocabulary(options.model_dir, options.vocab_file)
    runs.check_checkpoint(options.model_dir, options.checkpoint)
    exported.check_packages(options.format)
    with run_options.logging_level(options.verbose):
        # Measures before loading: under Keras 3, another process measures, and
        # needs GPU memory that the loaded model would take.
        measured = rounded_metrics.measure(options, spec, reporter)
        reporter.note(f"Loading the model of {options.model_dir}.")
        model = _load(
            options, spec, experiment, configured, vocab_file, reporter
        )
        text = f"Building the graph, and writing {options.output_dir}."
        if options.format != "saved_model":
            text += " The conversion can take minutes."
        reporter.note(text)
        _write(model, options, vocab_file, measured)
    return Result(options.output_dir, model.checkpoint, measured)


def _check_format(options: Options) -> None:
    """Raises an error for options that need `format=saved_model`."""
    defaults = {x.name: x.default for x in dataclasses.fields(options)}
    for name in ("weights", "validation_data", "license", "language"):
        if options.format != "saved_model" and (
            getattr(options, name) != defaults[name]
        ):
            raise UserError(
                f"`{name}` is for SavedModels. Leave it out with "
                f"`format={options.format}`."
            )


def _load(options, spec, experiment, configured, vocab_file, reporter):
    """Builds the model with the run's configuration and the overrides."""
    from etcmodel.engine import trained_model

    arguments = vocab_file, options.checkpoint
    note = runs.read(options.model_dir)
    is_own = experiment == note["experiment"]
    if is_own and not (options.config_file or options.params_override):
        params = runs.read_params(options.model_dir)
        try:
            return trained_model.load(
                spec, options.model_dir, params, *arguments
            )
        except FileNotFoundError:
            # Runs of older versions have no config file of their encoder.
            pass
    _, params = run_options.parse_params(configured, experiment, reporter)
    records = note.get("records") or {}
    config = params.task.model.encoder.to_config(records.get("vocab_size"))
    return trained_model.load(
        spec, options.model_dir, params.as_dict(), *arguments, config
    )


def _write(model, options: Options, vocab_file: str, measured) -> None:
    """Writes the model in the chosen format."""
    from etcmodel.engine import export_card
    from etcmodel.serving import converted
    from etcmodel.serving import saved_model
    from etcmodel.serving import signatures

    if options.format != "saved_model":
        converted.export_converted(
            model.model,
            model.preprocessor,
            options.output_dir,
            format=options.format,
            metadata=model.metadata,
            vocab_file=vocab_file,
            overwrite=options.overwrite,
        )
        return
    module, warmup_inputs = signatures.make_serving_module(
        model.model, model.preprocessor, model.task_model, options.weights
    )
    saved_model.export_saved_model(
        module,
        options.output_dir,
        model_name=model.spec.name,
        metadata=model.metadata,
        warmup_inputs=warmup_inputs,
        overwrite=options.overwrite,
        add_files=lambda directory: export_card.write(
            directory, options, model, module, warmup_inputs, measured
        ),
    )
