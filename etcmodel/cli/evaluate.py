"""`evaluate`: measures a trained model on TFRecords."""

from etcmodel.engine import evaluate
from etcmodel.engine.progress import Reporter

DESCRIPTION = """
Measures a checkpoint of a run on validation records: the one that `export`
takes, which gives the same answers: both compute in float32. The run's own
configuration (MODEL_DIR/params.yaml) is used otherwise; --config_file and
--params_override change it.
Thresholds are those that the run's validation chose; --tune chooses them again.
Records may be longer than the training records with
--params_override=task.model.long_length=N, which `export` then needs, too.
To measure a SavedModel on a data file use `predict`, which prints the
official metric when the file has answers.
"""

EXAMPLE = """
python -m etcmodel evaluate --model_dir=runs/1 --validation_data=data/dev
"""


Options = evaluate.Options


def run(options: Options) -> None:
    """Evaluates a run and prints the metrics."""
    result = evaluate.evaluate(options, Reporter())
    print(f"Checkpoint: {result.checkpoint}")
    for name, value in sorted(result.metrics.items()):
        print(f"{name}: {value:.6g}")
