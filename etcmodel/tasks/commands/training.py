"""What `train` and `evaluate` share: flags, configuration, the runner."""

import json
import os
import shutil

from absl import flags
from absl import logging

from etcmodel.errors import UserError
from etcmodel.tasks import registry

# Note in the model directory that tells `evaluate` and `export` what it is.
RUN_FILE = "etcmodel.json"
PARAMS_FILE = "params.yaml"


def define_model_garden_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the Model Garden's trainer.

    Args:
        flag_values: where to define them.
    """
    flags.DEFINE_string(
        "model_dir",
        None,
        "Directory of the run: checkpoints, TensorBoard logs, configuration.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "experiment",
        None,
        "The registered experiment, such as etc/hotpotqa, etc/nq or "
        "etc/wikihop. A name that does not exist lists all of its task.",
        flag_values=flag_values,
    )
    flags.DEFINE_multi_string(
        "config_file",
        None,
        "YAML or JSON file with values that replace those of the experiment; "
        "may be given several times.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "params_override",
        None,
        "Values that replace those of the experiment and of --config_file: "
        "`a.b=1,c.d=x`, or YAML or JSON, or a file of it.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "tpu",
        None,
        "Name or grpc:// address of a Cloud TPU, or `local`.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "tf_data_service",
        None,
        "Address of a tf.data service.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "verbose",
        False,
        "Show the trainer's whole log.",
        flag_values=flag_values,
    )


def set_up_logging(verbose: bool) -> None:
    """Shows the trainer's log, or only its errors.

    Args:
        verbose: whether to show all of it.
    """
    import tensorflow as tf

    logging.set_verbosity(logging.INFO if verbose else logging.ERROR)
    tf.get_logger().setLevel("INFO" if verbose else "ERROR")


def parse_params(flag_values: flags.FlagValues, experiment: str):
    """The experiment's configuration with all overrides applied.

    Args:
        flag_values: the parsed flags.
        experiment: name of the experiment.

    Returns:
        Pair of the task's entry and the `ExperimentConfig`.

    Raises:
        UserError: unknown experiment, or an override that does not fit.
    """
    entry = registry.task_of_experiment(experiment)
    import tensorflow as tf
    import yaml
    from official.core import exp_factory
    from official.core import train_utils

    options = train_utils.ParseConfigOptions(
        experiment=experiment,
        config_file=flag_values.config_file or [],
        tpu=flag_values.tpu,
        tf_data_service=flag_values.tf_data_service or "",
        params_override=flag_values.params_override or "",
    )
    defaults = exp_factory.get_exp_config(experiment)
    try:
        params = train_utils.parse_configuration(
            options, lock_return=False, print_return=True
        )
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OSError,
        yaml.YAMLError,
        tf.errors.OpError,
    ) as error:
        detail = error.args[0] if error.args else error
        raise UserError(
            "The overrides (--config_file, --params_override) do not fit the "
            f"experiment {experiment}: {getattr(error, 'message', detail)}"
        ) from error
    _follow_train_steps(params, defaults)
    _choose_devices(params)
    return entry, params


def _follow_train_steps(params, defaults) -> None:
    """Scales warm-up and decay when only the number of steps was changed."""
    steps = params.trainer.train_steps
    default_steps = defaults.trainer.train_steps
    if steps == default_steps:
        return
    schedule = params.trainer.optimizer_config
    default = defaults.trainer.optimizer_config
    decay, warmup = schedule.learning_rate.polynomial, schedule.warmup.linear
    default_decay = default.learning_rate.polynomial
    default_warmup = default.warmup.linear
    if decay.decay_steps == default_decay.decay_steps == default_steps:
        decay.decay_steps = steps
        if warmup.warmup_steps == default_warmup.warmup_steps:
            warmup.warmup_steps = (
                steps * default_warmup.warmup_steps // default_steps
            )
        print(
            f"The learning rate follows trainer.train_steps: {steps} steps, of "
            f"which {warmup.warmup_steps} are warm-up."
        )


def _choose_devices(params) -> None:
    """Uses a TPU if one was named, and all GPUs unless told otherwise."""
    import tensorflow as tf

    runtime = params.runtime
    if runtime.tpu and runtime.distribution_strategy == "mirrored":
        runtime.distribution_strategy = "tpu"
    if runtime.num_gpus == 0 and runtime.distribution_strategy == "mirrored":
        runtime.num_gpus = len(tf.config.list_physical_devices("GPU"))


def set_precision(params) -> None:
    """Sets the global precision policy as the configuration says.

    Args:
        params: the `ExperimentConfig`.
    """
    from official.modeling import performance

    if params.runtime.mixed_precision_dtype:
        performance.set_mixed_precision_policy(
            params.runtime.mixed_precision_dtype
        )


def make_runner(params, mode: str, model_dir: str):
    """Builds the task, the model and the Model Garden's runner.

    Args:
        params: the `ExperimentConfig`.
        mode: as of the flag `--mode`.
        model_dir: directory of the run.

    Returns:
        Pair of the task and an `OrbitExperimentRunner`.

    Raises:
        UserError: the configuration does not fit the data.
    """
    from official.common import distribute_utils
    from official.core import task_factory
    from official.core import train_lib

    try:
        strategy = distribute_utils.get_distribution_strategy(
            distribution_strategy=params.runtime.distribution_strategy,
            all_reduce_alg=params.runtime.all_reduce_alg,
            num_gpus=params.runtime.num_gpus,
            tpu_address=params.runtime.tpu,
        )
        with strategy.scope():
            task = task_factory.get_task(params.task, logging_dir=model_dir)
        runner = train_lib.OrbitExperimentRunner(
            distribution_strategy=strategy,
            task=task,
            mode=mode,
            params=params,
            model_dir=model_dir,
        )
    except ValueError as error:
        raise UserError(f"The configuration cannot be run: {error}") from error
    return task, runner


def run_mode(runner, params, mode: str) -> dict[str, float]:
    """Trains and evaluates.

    The runner has a method for this, which afterwards counts operations on a
    copy of the model with its weights as constants; that takes minutes and
    gigabytes for large models.

    Args:
        runner: from `make_runner`.
        params: the `ExperimentConfig`.
        mode: as of the flag `--mode`.

    Returns:
        The metrics of the last evaluation, if there was one.
    """
    trainer, controller = params.trainer, runner.controller
    logs = {}
    with runner.strategy.scope():
        if mode == "train_and_eval":
            controller.train_and_evaluate(
                train_steps=trainer.train_steps,
                eval_steps=trainer.validation_steps,
                eval_interval=trainer.validation_interval,
            )
        elif mode == "continuous_eval":
            controller.evaluate_continuously(
                steps=trainer.validation_steps,
                timeout=trainer.continuous_eval_timeout,
                timeout_fn=lambda: (
                    runner.trainer.global_step.numpy() >= trainer.train_steps
                ),
            )
        elif "train" in mode:
            controller.train(steps=trainer.train_steps)
        if mode in ("eval", "train_and_post_eval"):
            logs = controller.evaluate(steps=trainer.validation_steps)
    return {
        name: float(value)
        for name, value in logs.items()
        if not name.startswith("best_")
    }


def check_data(params, mode: str) -> None:
    """Checks that the data that a mode reads are named.

    Args:
        params: the `ExperimentConfig`.
        mode: as of the flag `--mode`.

    Raises:
        UserError: a path is missing.
    """
    for word, field in [("train", "train_data"), ("eval", "validation_data")]:
        if word in mode and not getattr(params.task, field).input_path:
            raise UserError(
                f"There is no {field}. Give the --output_dir of `preprocess`: "
                f"--params_override=task.{field}.input_path=DIR."
            )


def save_run(task, entry, experiment: str, model_dir: str) -> None:
    """Notes in the model directory what `evaluate` and `export` need.

    Args:
        task: the Model Garden task, which knows the records.
        entry: the task's `TaskEntry`.
        experiment: name of the experiment.
        model_dir: directory of the run.
    """
    os.makedirs(model_dir, exist_ok=True)
    note = {"task": entry.name, "experiment": experiment}
    metadata = task.metadata
    if metadata:
        note["records"] = {
            key: metadata[key]
            for key in ("features", "vocab_file", "vocab_size")
        }
        shutil.copyfile(
            os.path.join(metadata["directory"], metadata["vocab_file"]),
            os.path.join(model_dir, metadata["vocab_file"]),
        )
    with open(
        os.path.join(model_dir, RUN_FILE), "w", encoding="utf-8"
    ) as stream:
        json.dump(note, stream, indent=2, sort_keys=True)
        stream.write("\n")


def read_run(model_dir: str) -> dict:
    """What `save_run` noted.

    Args:
        model_dir: directory of the run.

    Returns:
        The note.

    Raises:
        UserError: there is no such run.
    """
    path = os.path.join(model_dir, RUN_FILE)
    if not os.path.exists(path):
        raise UserError(
            f"{model_dir} is not the directory of a run: it has no {RUN_FILE}. "
            "Give the --model_dir of `train`."
        )
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def use_saved_params(flag_values: flags.FlagValues, model_dir: str) -> str:
    """Lets a run's own configuration come before that of the flags.

    Args:
        flag_values: the parsed flags; `config_file` is changed. An experiment
            other than the run's is taken as it is, without what the run says.
        model_dir: directory of the run.

    Returns:
        Name of the run's experiment, or that of the flag.

    Raises:
        UserError: the run's experiment is not known.
    """
    params_file = os.path.join(model_dir, PARAMS_FILE)
    wanted = flag_values.experiment
    if wanted and not os.path.exists(os.path.join(model_dir, RUN_FILE)):
        return wanted
    note = read_run(model_dir)
    if wanted and wanted != note["experiment"]:
        return wanted
    if os.path.exists(params_file):
        flag_values.config_file = [
            params_file,
            *(flag_values.config_file or []),
        ]
    return note["experiment"]
