"""Finds the best validation of a run, and keeps its checkpoint.

If two validations have equal metrics, the one with the lower loss is better.
"""

import math
import os
from collections.abc import Mapping
from collections.abc import Sequence

from official.core import config_definitions as cfg
from official.core import train_utils


def is_better(logs: Mapping, than: Mapping, trainer: cfg.TrainerConfig) -> bool:
    """Tells whether a validation is better than an earlier one.

    NaN is worse than any number.

    Args:
        logs: metrics of the new validation.
        than: metrics of the earlier validation. Older versions stored no
            validation loss; then losses are not compared.
        trainer: configuration with the metric's name, and whether lower values
            are better.
    """
    metric = trainer.best_checkpoint_eval_metric
    is_lower = trainer.best_checkpoint_metric_comp == "lower"
    for name, sign in ((metric, 1 if is_lower else -1), ("validation_loss", 1)):
        if name not in logs or name not in than:
            return False
        new, old = (sign * float(values[name]) for values in (logs, than))
        new, old = (math.inf if math.isnan(x) else x for x in (new, old))
        if new != old:
            return new < old
    return False


def number_since_best(
    validations: Sequence[Mapping], trainer: cfg.TrainerConfig
) -> int:
    """Returns the number of validations after the best one."""
    best = 0
    for i, logs in enumerate(validations):
        if is_better(logs, validations[best], trainer):
            best = i
    return len(validations) - 1 - best


class BestCheckpointExporter(train_utils.BestCheckpointExporter):
    """Keeps the best checkpoint and its metrics; see `is_better`."""

    def __init__(self, export_dir: str, trainer: cfg.TrainerConfig):
        super().__init__(
            export_dir,
            trainer.best_checkpoint_eval_metric,
            trainer.best_checkpoint_metric_comp,
        )
        self._trainer = trainer

    def _new_metric_is_better(self, old_logs, new_logs):
        return is_better(new_logs, old_logs, self._trainer)


def make_exporter(
    params: cfg.ExperimentConfig, model_dir: str
) -> BestCheckpointExporter | None:
    """Returns the exporter that keeps a run's best checkpoint.

    Returns None if the configuration disables it.
    """
    trainer = params.trainer
    folder = trainer.best_checkpoint_export_subdir
    if not folder or not trainer.best_checkpoint_eval_metric:
        return None
    return BestCheckpointExporter(os.path.join(model_dir, folder), trainer)
