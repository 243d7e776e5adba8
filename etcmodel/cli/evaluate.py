"""`evaluate`: evaluates a trained model on TFRecords."""

from etcmodel.engine import evaluate
from etcmodel.engine.progress import Reporter

DESCRIPTION = """
Evaluates a checkpoint of a run on validation records. By default, this is the
checkpoint that `export` would use, computed in float32, so the SavedModel gives
the same answers. The configuration is that of the run (MODEL_DIR/params.yaml);
--config_file and --params_override change it.
The run's validation has tuned the thresholds; --tune tunes them again.
To evaluate on longer records than in training, add
--params_override=task.model.long_length=N, also to `export`.
To evaluate a SavedModel on a data file, use `predict`, which prints the
official metrics if the file has answers.
"""

EXAMPLE = """
python -m etcmodel evaluate --model_dir=runs/1 --validation_data=data/dev
"""

COMMON_FLAGS = (
    "validation_data",
    "checkpoint",
    "output",
)


Options = evaluate.Options


def run(options: Options) -> None:
    """Evaluates a run and prints the metrics."""
    result = evaluate.evaluate(options, Reporter())
    print(f"Checkpoint: {result.checkpoint}")
    for name, value in sorted(result.metrics.items()):
        print(f"{name}: {value:.6g}")
