"""`train`: trains a model on TFRecords with the Model Garden."""

import dataclasses
import os
import sys

from etcmodel.engine import train
from etcmodel.engine.progress import Reporter
from etcmodel.tasks import registry

DESCRIPTION = """
Trains a model with the TensorFlow Model Garden: on a CPU, all GPUs of the
machine, several machines (TF_CONFIG) or a TPU (--tpu). The experiment has the
paper's hyperparameters. The number of steps is computed from its epochs and the
number of records. All parameters can be overridden, for example

  --params_override=trainer.train_steps=500,task.model.encoder.local_radius=64

The whole configuration is written to MODEL_DIR/params.yaml.

The same command resumes an interrupted run from its last complete checkpoint.
A finished run is not changed. With more --epochs, it is trained longer; fewer
steps than it has already made are an error. Missing or truncated files of
records raise an error before the training. A damaged file raises an error when
it is read. With --validation_data, the checkpoint with the best validation
metric is kept in MODEL_DIR/best_ckpt. To watch the training:

  tensorboard --logdir=MODEL_DIR
"""

EXAMPLE = """
python -m etcmodel train --experiment=etc/wikihop --model_dir=runs/1 \\
    --train_data=data/train --validation_data=data/dev
"""

COMMON_FLAGS = (
    "train_data",
    "validation_data",
    "init_checkpoint",
    "epochs",
    "batch_size",
    "learning_rate",
    "seed",
    "small",
)


@dataclasses.dataclass(kw_only=True)
class Options(train.Options):
    """Options of `train`.

    Attributes:
        dry_run: train two steps, print shapes, parameters, memory and time,
            and write nothing.
        print_config: print the whole configuration, with the preset's sizes,
            and exit.
    """

    dry_run: bool = False
    print_config: bool = False


def run(options: Options) -> None:
    """Trains a model and prints how to use it."""
    if options.print_config:
        import yaml

        # Notes go to stderr, so that the output is a valid `config_file`.
        values = train.resolve(options, Reporter("lines", sys.stderr))
        print(yaml.dump(values), end="")
        return
    if options.dry_run:
        print(train.dry_run(options, Reporter()))
        return
    result = train.train(options, Reporter())
    if not result.is_trained:
        print(
            f"{result.model_dir} is already at step {result.steps} of "
            f"{result.steps}; nothing is trained. To train it longer, raise "
            "--epochs (or trainer.train_steps)."
        )
        return
    _print_next_steps(result)


def _print_next_steps(result: train.Result) -> None:
    """Prints the commands that use a run."""
    model_dir = result.model_dir
    print(
        f"The trained model is in {model_dir}. To see losses and metrics:\n"
        f"  tensorboard --logdir={model_dir}"
    )
    if registry.get(result.task).has_answers:
        print(
            "To export it as a SavedModel that takes raw text:\n"
            f"  python -m etcmodel export --model_dir={model_dir} "
            f"--output_dir={os.path.join(model_dir, 'saved_model')}"
        )
    else:
        print(
            "To train a task that starts from it:\n"
            "  python -m etcmodel train --experiment=EXPERIMENT "
            f"--init_checkpoint={model_dir} ..."
        )
