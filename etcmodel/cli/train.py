"""`train`: the Model Garden's trainer on the TFRecords of `preprocess`."""

import contextlib
import dataclasses
import os
import sys

from absl import flags

from etcmodel.cli import paths
from etcmodel.cli import progress
from etcmodel.cli import training
from etcmodel.errors import UserError
from etcmodel.pipeline.options import option
from etcmodel.tasks import registry
from etcmodel.training import runs

DESCRIPTION = """
Trains a model with the TensorFlow Model Garden: on CPU, all GPUs of the
machine, several machines (TF_CONFIG) or a TPU (--tpu). The experiment holds the
paper's hyperparameters; the number of steps follows from its epochs and the
records at hand. Everything in it can be changed, for example

  --params_override=trainer.train_steps=500,task.model.encoder.local_radius=64

The whole configuration is written to MODEL_DIR/params.yaml. The same command
resumes an interrupted run from its newest complete checkpoint. A finished run
is not changed; with more --epochs it is trained longer, and fewer steps than it
has are an error. Missing or truncated files of records raise an error before
the training; a damaged file raises one that names it during the training. With
--validation_data the checkpoint with the best validation metric is kept in
MODEL_DIR/best_ckpt. To watch it:

  tensorboard --logdir=MODEL_DIR
"""

EXAMPLE = """
python -m etcmodel train --experiment=etc/wikihop --model_dir=runs/1 \\
    --train_data=data/train --validation_data=data/dev
"""


@dataclasses.dataclass(kw_only=True)
class Flags(training.TrainerFlags):
    """The flags.

    Attributes:
        mode: whether to train, to evaluate during training or after it, or to
            evaluate the last checkpoint or every new one.
        train_data: the records to learn from: the --output_dir of `preprocess`.
        validation_data: the records to evaluate with: the --output_dir of
            `preprocess --split=dev`. With it, --mode is train_and_eval unless
            it is given.
        epochs: passes over the records; by default the experiment's.
        batch_size: records of a step, over all replicas.
        learning_rate: the highest one, after the warm-up.
        preset: sizes of the encoder: tiny, small, base, base_shared or large
            for ETC; tiny, base, base_cls or base_sts for ReadTwice.
        init_checkpoint: initial weights: the output of `lift`, a published
            checkpoint with its etc_config.json, or another run, of which the
            last checkpoint counts. The encoder's sizes are taken from there,
            too; a run of the same task also initializes the head, and one of
            the same experiment gives the options of its model.
        patience: validations without a better metric after which the training
            stops; by default it goes on to the end.
        seed: seed of the weights, the order of records and dropout.
        small: a trial run of minutes on two cores: the preset tiny (not small,
            which is larger), batches of 8, a learning rate of 0.001, no
            dropout. Other flags override it.
        dry_run: build everything, make two steps, print shapes, parameters,
            memory and time, and write nothing.
        print_config: print the whole configuration, with the preset's sizes,
            and exit.
    """

    # Needed here, unlike elsewhere.
    experiment: str = dataclasses.field()
    mode: str | None = option(
        None,
        one_of=[
            "train",
            "eval",
            "train_and_eval",
            "continuous_eval",
            "train_and_post_eval",
        ],
    )
    train_data: str | None = option(None, path="records")
    validation_data: str | None = option(None, path="records")
    epochs: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    preset: str | None = None
    init_checkpoint: str | None = option(None, path="weights")
    patience: int | None = None
    seed: int | None = option(None, min_value=0)
    small: bool = False
    dry_run: bool = False
    print_config: bool = False


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command."""
    registry.task_of_experiment(flag_values.experiment)
    mode = flag_values.mode
    if mode is None:
        mode = "train_and_eval" if flag_values.validation_data else "train"
    if flag_values.patience is not None and mode != "train_and_eval":
        raise UserError(
            f"--patience={flag_values.patience} needs --validation_data (mode "
            "train_and_eval)."
        )
    if not flag_values.print_config:
        training.check_flags(flag_values, mode)
    # The output of --print_config can be a --config_file.
    notes = sys.stderr if flag_values.print_config else sys.stdout
    with contextlib.redirect_stdout(notes):
        spec, params = training.parse_params(
            flag_values, flag_values.experiment
        )
    if flag_values.print_config:
        import yaml

        print(yaml.dump(training.resolved(params, spec)), end="")
        return
    training.check_data(params, mode)
    if not flag_values.dry_run:
        paths.check_params(
            params, "--model_dir", flag_values.model_dir, "new_run"
        )
    import tensorflow as tf

    # The workers of a tf.data service must draw other orders.
    if "train" in mode and not params.task.train_data.enable_tf_data_service:
        tf.random.set_seed(runs.choose_seed(params, flag_values.model_dir))
    if flag_values.seed is not None:
        tf.keras.utils.set_random_seed(flag_values.seed)
    if flag_values.dry_run:
        from etcmodel.cli import dry_run

        print(dry_run.describe(params))
    else:
        _run_in_directory(flag_values, spec, params, mode)


def _run_in_directory(flag_values, spec, params, mode: str) -> None:
    """Trains or evaluates, unless the run has nothing left to do."""
    from etcmodel.training import configuration
    from etcmodel.training import run_directory

    model_dir = flag_values.model_dir
    with contextlib.ExitStack() as stack:
        if "train" in mode:
            metadata = configuration.find_metadata(params.task, spec)
            runs.check_same(params, metadata, spec, model_dir)
            if metadata:
                runs.check_own_vocabulary(metadata)
            stack.enter_context(run_directory.hold(model_dir))
        run_directory.prepare(model_dir)
        steps = params.trainer.train_steps
        # A final evaluation is done even then.
        if (
            "train" in mode
            and runs.is_finished(params, model_dir)
            and "post" not in mode
            and not (
                mode == "train_and_eval"
                and training.lacks_validation(model_dir, steps)
            )
        ):
            print(
                f"{model_dir} is already at step {steps} of {steps}; nothing "
                "is trained. To train it longer, raise --epochs (or "
                "trainer.train_steps)."
            )
            return
        _run(flag_values, spec, params, mode)
    if "train" in mode:
        _print_next_steps(spec, model_dir)


def _run(flag_values: flags.FlagValues, spec, params, mode: str) -> None:
    """Trains or evaluates in the run's directory."""
    model_dir, trainer, show = flag_values.model_dir, params.trainer, None
    with (
        training.quiet(flag_values.verbose) as out,
        contextlib.ExitStack() as stack,
    ):
        # The trainer's whole log has losses and speed of its own.
        if "train" in mode and not flag_values.verbose:
            show = stack.enter_context(
                progress.TrainingProgress(
                    trainer.train_steps, trainer.summary_interval, out
                )
            )
        task, runner = training.make_runner(
            params, mode, model_dir, spec, show, out, flag_values.patience
        )
        if "train" in mode:
            runs.write_params(model_dir, params.as_dict())
            model = runner.trainer.model
            runs.save(task, model, spec, flag_values.experiment, model_dir)
            runs.keep_tuned(spec, params.task.init_checkpoint, model_dir)
        training.run_mode(runner, params, mode, show)


def _print_next_steps(spec, model_dir: str) -> None:
    print(
        f"The trained model is in {model_dir}. To watch how it went:\n"
        f"  tensorboard --logdir={model_dir}"
    )
    if spec.has_answers:
        print(
            "To make a SavedModel of it that answers raw text:\n"
            f"  python -m etcmodel export --model_dir={model_dir} "
            f"--output_dir={os.path.join(model_dir, 'saved_model')}"
        )
    else:
        print(
            "To train a task that starts from it:\n"
            "  python -m etcmodel train --experiment=EXPERIMENT "
            f"--init_checkpoint={model_dir} ..."
        )
