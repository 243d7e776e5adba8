"""WikiHop: options, and experiments of the ETC paper's Table 3."""

import dataclasses

from etcmodel.datasets import wikihop
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import read_experiments


@dataclasses.dataclass(frozen=True)
class WikiHopPreprocessingConfig:
    """Sizes; the defaults are the paper's.

    Attributes:
        long_length: length of the long input; None for the longest record of a
            batch (nothing is cut then).
        global_length: length of the global input; None for the longest record
            of a batch.
        max_num_sentences: maximum number of sentences of all documents of a
            record together.
    """

    long_length: int | None = 4096
    global_length: int | None = 430
    max_num_sentences: int | None = 200


@dataclasses.dataclass
class WikiHopModelOptions:
    """Model options.

    Attributes:
        add_final_layer: whether a feed-forward block precedes the logits.
        candidate_ignore_hard_g2l: whether candidates attend to all long tokens
            despite the hard g2l mask.
        query_ignore_hard_g2l: whether the query's global tokens attend to all
            long tokens despite the hard g2l mask.
        use_links: whether candidates are linked to their mentions.
        flat_sequence: whether to ignore paragraphs (an ablation).
    """

    add_final_layer: bool = True
    candidate_ignore_hard_g2l: bool = True
    query_ignore_hard_g2l: bool = True
    use_links: bool = True
    flat_sequence: bool = False


@dataclasses.dataclass
class WikiHopOptions:
    """Options of the loss.

    Attributes:
        label_smoothing: share of the target probability that is spread evenly
            over all candidates.
    """

    label_smoothing: float = 0.0


TASK = TaskSpec(
    name="wikihop",
    summary="WikiHop (QAngaroo): choose among candidate answers",
    dataset=wikihop,
    preprocessing_config=WikiHopPreprocessingConfig,
    preprocessor="etcmodel.tasks.wikihop.preprocessor:WikiHopPreprocessor",
    model="etcmodel.tasks.wikihop.model:WikiHop",
    model_options=WikiHopModelOptions,
    options=WikiHopOptions,
    # ETC paper, section 4.1 and Appendix C: learning rates of 1e-5 to 5e-5, 5,
    # 10 or 15 epochs.
    recipe={
        "num_examples": 43738,
        "epochs": 15,
        "batch_size": 64,
        "learning_rate": 4e-5,
        "weight_decay": 0.1,
        "best_metric": "accuracy",
        "use_hard_g2l_mask": True,
    },
    experiments=read_experiments(__file__),
    pipeline_tag="multiple-choice",
)
