"""OpenKP: options, and experiments of the ETC paper's Table 4."""

import dataclasses

from etcmodel.datasets import openkp
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import read_experiments


@dataclasses.dataclass(frozen=True)
class OpenKPPreprocessingConfig:
    """Sizes; the defaults are the paper's.

    Attributes:
        long_length: length of the long input.
        global_length: length of the global input: maximum number of nodes.
        fixed_block_size: the paper's ablation "fixed blocks": the global input
            has one token for each block of this many long tokens; 0 for one
            token for each node.
    """

    long_length: int = 4096
    global_length: int = 512
    fixed_block_size: int = 0

    def __post_init__(self):
        if self.fixed_block_size < 0:
            raise ValueError(
                f"fixed_block_size is {self.fixed_block_size}, expected 0 or "
                "more."
            )
        room = self.fixed_block_size * self.global_length
        if 0 < room < self.long_length:
            raise ValueError(
                f"{self.global_length} blocks of {self.fixed_block_size} have "
                f"room for {room} tokens, but long_length is "
                f"{self.long_length}. Raise global_length or fixed_block_size."
            )


@dataclasses.dataclass
class OpenKPModelOptions:
    """Model options.

    Attributes:
        visual_in_global: whether the visual features of nodes are added to
            their global tokens.
        visual_in_long: whether they are added to the words of their nodes.
        visual_layers: number of dense layers for positions, sizes and flags.
    """

    visual_in_global: bool = True
    visual_in_long: bool = True
    visual_layers: int = 2


@dataclasses.dataclass
class OpenKPOptions:
    """Options of the loss.

    Attributes:
        max_loss: whether to learn the most probable occurrence of a phrase
            instead of the first.
        label_smoothing: share of the target probability that is spread evenly
            over all phrases of a page.
    """

    max_loss: bool = False
    label_smoothing: float = 1e-4


TASK = TaskSpec(
    name="openkp",
    summary="OpenKP: keyphrases of web pages",
    dataset=openkp,
    preprocessing_config=OpenKPPreprocessingConfig,
    preprocessor="etcmodel.tasks.openkp.preprocessor:OpenKPPreprocessor",
    model="etcmodel.tasks.openkp.model:OpenKP",
    model_options=OpenKPModelOptions,
    options=OpenKPOptions,
    # ETC paper, section 4.1 and Appendix C: learning rates of 3e-5 and 5e-5, 2
    # or 3 epochs.
    recipe={
        "num_examples": 133374,
        "epochs": 3,
        "batch_size": 64,
        "learning_rate": 5e-5,
        "weight_decay": 0.01,
        "best_metric": "f1_at_3",
        "use_hard_g2l_mask": True,
    },
    experiments=read_experiments(__file__),
    pipeline_tag="token-classification",
)
