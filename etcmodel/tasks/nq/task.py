"""Natural Questions: options, and experiments of the ETC paper's Table 2.

Lengths (512, 4,096, 8,192), the stride of windows and fixed blocks are options
of preprocessing.
"""

import dataclasses

from etcmodel.datasets import nq
from etcmodel.pipeline.spec import NoOptions
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import read_experiments

# Special tokens of a window: a CLS and two separators.
NUM_SPECIAL_TOKENS = 3


@dataclasses.dataclass(frozen=True)
class NQPreprocessingConfig:
    """Sizes; the defaults are the paper's.

    Attributes:
        long_length: length of the long input, which holds one window of a page.
        global_length: length of the global input.
        stride: tokens of the page from the start of one window to the next.
        question_length: maximum number of tokens of a question.
        include_html_tokens: whether HTML tags are in the input; all opening
            tags have the same token id, all closing tags another.
        fixed_block_size: the paper's ablation "fixed blocks": the global input
            has only one token for each block of this many long tokens; 0 for
            one token for each candidate.
        include_unknown_rate: for pages with an answer, share of the windows
            without it that is kept for training.
        include_unknown_rate_for_unanswerable: for pages without an answer,
            share of the windows that is kept for training; 4 times
            `include_unknown_rate` by default.
    """

    long_length: int = 4096
    global_length: int = 230
    stride: int = 2048
    question_length: int = 32
    include_html_tokens: bool = True
    fixed_block_size: int = 0
    include_unknown_rate: float = 1.0
    include_unknown_rate_for_unanswerable: float | None = None

    @property
    def unanswerable_rate(self) -> float:
        """Share of windows to keep of training pages without an answer."""
        if self.include_unknown_rate_for_unanswerable is None:
            return 4.0 * self.include_unknown_rate
        return self.include_unknown_rate_for_unanswerable

    def __post_init__(self):
        for name in (
            "question_length",
            "include_unknown_rate",
            "unanswerable_rate",
        ):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, expected 0 or more."
                )
        room = self.long_length - self.question_length - NUM_SPECIAL_TOKENS
        if room < 1:
            raise ValueError(
                f"long_length is {self.long_length}: a question of "
                f"question_length={self.question_length} leaves no room for "
                "the page. Raise long_length or lower question_length."
            )
        if not 0 < self.stride <= room:
            raise ValueError(
                f"stride is {self.stride}: parts of a page would be in no "
                f"window. With long_length={self.long_length} and "
                f"question_length={self.question_length} it can be 1 to {room}."
            )
        if self.fixed_block_size < 0:
            raise ValueError(
                f"fixed_block_size is {self.fixed_block_size}, expected 0 or "
                "more."
            )
        if self.fixed_block_size:
            needed = -(-self.long_length // self.fixed_block_size)
        else:
            # The CLS, the question, and at least one candidate.
            needed = self.question_length + 2
        if self.global_length < needed:
            raise ValueError(
                f"global_length is {self.global_length}, expected at least "
                f"{needed}."
            )


@dataclasses.dataclass
class NQOptions:
    """Options for choosing answers.

    Attributes:
        null_threshold: an exported model returns answers with a higher score
            than this. At a score of 0, an answer is as probable as no answer.
        max_short_answer_words: maximum length of a short answer.
    """

    null_threshold: float = 0.0
    max_short_answer_words: int = 38


TASK = TaskSpec(
    name="nq",
    summary="Natural Questions: long and short answers of a page",
    dataset=nq,
    preprocessing_config=NQPreprocessingConfig,
    preprocessor="etcmodel.tasks.nq.preprocessor:NQPreprocessor",
    model="etcmodel.tasks.nq.model:NQ",
    model_options=NoOptions,
    options=NQOptions,
    # ETC paper, section 4.1 and Appendix C: learning rates of 3e-5 and 5e-5, 3
    # or 5 epochs, for large models 2 or 3. The number of steps assumes one
    # example per page.
    recipe={
        "num_examples": 307373,
        "epochs": 5,
        "batch_size": 64,
        "learning_rate": 5e-5,
        "best_metric": "average_best_threshold_f1",
        "use_hard_g2l_mask": True,
    },
    experiments=read_experiments(__file__),
    pipeline_tag="question-answering",
)
