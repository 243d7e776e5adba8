"""Pre-training of ReadTwice: options, and experiments of its paper."""

import dataclasses

from etcmodel.datasets import documents
from etcmodel.pipeline.spec import ReadTwiceModelOptions
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import read_experiments

_PACKAGE = "etcmodel.tasks.read_twice_pretrain"


@dataclasses.dataclass
class PretrainOptions:
    """Options of masking and losses.

    Attributes:
        mlm_fraction_to_mask: share of the words outside of mentions to mask.
        mlm_entity_fraction_to_mask: share of the mentions to mask.
        mlm_max_consecutive_masks: maximum number of consecutive masked words.
        mention_mask_mode: "whole_mention", "whole_entity" or
            "whole_entity_batch"; see `entity_masking.mask_tokens`.
        max_predictions_per_block: maximum number of masked tokens of a segment
            that are predicted; 0 for a quarter of the segment's length.
        coreference_weight: weight of the coreference loss, 0 for none; the
            masked-token loss has weight 1. Both weights are divided by their
            sum.
    """

    mlm_fraction_to_mask: float = 0.15
    mlm_entity_fraction_to_mask: float = 0.25
    mlm_max_consecutive_masks: int = 5
    mention_mask_mode: str = "whole_mention"
    max_predictions_per_block: int = 0
    coreference_weight: float = 1.0


TASK = TaskSpec(
    name="read_twice_pretrain",
    summary="pre-training of ReadTwice on documents with mentions",
    dataset=documents,
    preprocessing_config=f"{_PACKAGE}.preprocessor:PretrainPreprocessingConfig",
    preprocessor=f"{_PACKAGE}.preprocessor:PretrainPreprocessor",
    model=f"{_PACKAGE}.model:ReadTwicePretraining",
    model_options=ReadTwiceModelOptions,
    options=PretrainOptions,
    has_answers=False,
    reads_segments=True,
    reading=("documents",),
    # ReadTwice paper, section 4.1. The paper only gives the optimizer and the
    # number of steps; the other values come from the original code.
    recipe={
        "batch_size": 512,
        "validation_batch_size": 512,
        "shuffle_buffer_size": 100,
        "learning_rate": 1e-4,
        "train_steps": 1_000_000,
        "warmup_steps": 10_000,
        "validation_interval": 10_000,
        "optimizer": "lamb",
        "best_metric": "mlm_accuracy",
    },
    experiments=read_experiments(__file__),
)
