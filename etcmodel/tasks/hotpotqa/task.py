"""HotpotQA: options, and experiments of the ETC paper's Table 3."""

import dataclasses

from etcmodel.datasets import hotpotqa
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import Tuned
from etcmodel.pipeline.spec import read_experiments


@dataclasses.dataclass(frozen=True)
class HotpotQAPreprocessingConfig:
    """Sizes; the defaults are the paper's.

    Attributes:
        long_length: length of the long input; None for the longest record of a
            batch (nothing is cut then).
        global_length: length of the global input; None for the longest record
            of a batch.
    """

    long_length: int | None = 4096
    global_length: int | None = 256


@dataclasses.dataclass
class HotpotQAModelOptions:
    """Model options.

    Attributes:
        answer_encoding: "span" for the first and last token of an answer,
            "bio" for a label of every token.
        answer_places: with "span", up to this many occurrences of an answer are
            labelled as correct in training; the original code only labels the
            first.
        query_ignore_hard_g2l: whether the question's global tokens attend to
            all long tokens despite the hard g2l mask, as the global CLS does;
            the original code does not exempt them.
        flat_sequence: whether to ignore paragraphs (an ablation).
        unit_prior: initial probability that a sentence is a supporting fact.
            About 1 sentence in 20 is a supporting fact, so 0.05 saves several
            hundred steps at the start of training.
    """

    answer_encoding: str = "span"
    answer_places: int = 1
    query_ignore_hard_g2l: bool = False
    flat_sequence: bool = False
    unit_prior: float = 0.5


@dataclasses.dataclass
class HotpotQAOptions:
    """Options for training on answers and choosing them.

    Attributes:
        supporting_fact_threshold: minimum probability of a supporting fact;
            None: the value with the best metric on the validation data.
        max_answer_length: maximum length of an answer, in tokens.
        supporting_fact_weight: weight of the supporting facts' loss, which is a
            sum over titles, sentences and paragraphs; every other loss has
            weight 1.
        multiply_fact_probability: whether the answer is the span with the
            highest product of span probability and fact probability of its
            sentence. The original code takes the most probable span of the
            sentences above the threshold.
    """

    supporting_fact_threshold: float | None = None
    max_answer_length: int = 30
    supporting_fact_weight: float = 1.0
    multiply_fact_probability: bool = False


TASK = TaskSpec(
    name="hotpotqa",
    summary="HotpotQA: answer from paragraphs, with supporting facts",
    dataset=hotpotqa,
    preprocessing_config=HotpotQAPreprocessingConfig,
    preprocessor="etcmodel.tasks.hotpotqa.preprocessor:HotpotQAPreprocessor",
    model="etcmodel.tasks.hotpotqa.model:HotpotQA",
    model_options=HotpotQAModelOptions,
    options=HotpotQAOptions,
    # ETC paper, section 4.1 and Appendix C: learning rates of 3e-5 and 5e-5, 3
    # to 9 epochs, batches of 32 and 64. Only examples whose answer is in the
    # paragraphs are counted.
    recipe={
        "num_examples": 90431,
        "epochs": 9,
        "batch_size": 64,
        "learning_rate": 5e-5,
        "best_metric": "joint_f1",
        "use_hard_g2l_mask": True,
    },
    tuned=Tuned(
        "supporting_fact_threshold",
        tuple(i / 10 for i in range(11)),
        default=0.5,
        metric="joint_f1",
    ),
    experiments=read_experiments(__file__),
    pipeline_tag="question-answering",
)
