"""ReadTwice on HotpotQA, TriviaQA, NarrativeQA (section 4, Appendix C)."""

import dataclasses

from etcmodel.datasets import narrativeqa
from etcmodel.datasets import triviaqa
from etcmodel.datasets.hotpotqa import answer_only
from etcmodel.pipeline.spec import ReadTwiceModelOptions
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import read_experiments

_PACKAGE = "etcmodel.tasks.read_twice_qa"


@dataclasses.dataclass
class Options:
    """Options for choosing answers.

    Attributes:
        decode_top_k: number of best spans of each segment; the best 64 of a
            document are compared.
        decode_max_size: maximum number of tokens of an answer.
        combine: confidence of an answer that is found several times: the
            highest ("max") or the total ("sum").
    """

    decode_top_k: int = 40
    decode_max_size: int = 10
    combine: str = "max"


@dataclasses.dataclass
class TriviaQAOptions(Options):
    """`Options` with the defaults of TriviaQA."""

    decode_top_k: int = 8
    decode_max_size: int = 20


def _task(name: str, summary: str, dataset, **values) -> TaskSpec:
    recipe = values.pop("recipe")
    return TaskSpec(
        **{
            "preprocessing_config": (
                f"{_PACKAGE}.preprocessor:QuestionPreprocessingConfig"
            ),
            "preprocessor": f"{_PACKAGE}.preprocessor:QuestionPreprocessor",
            "model": f"{_PACKAGE}.model:ReadTwiceQA",
            "options": Options,
            **values,
        },
        name=f"read_twice_{name}",
        summary=summary,
        dataset=dataset,
        model_options=ReadTwiceModelOptions,
        # Batch sizes count segments. The number of steps assumes that all
        # examples are full. The best checkpoint, by validation, may come before
        # the last epoch.
        recipe={
            "batch_size": 128,
            "validation_batch_size": 128,
            "epochs": 6,
            "cross_attention_top_k": 100,
            **recipe,
        },
        experiments=read_experiments(__file__, name),
        pipeline_tag="question-answering",
        reads_segments=True,
    )


TASKS = (
    _task(
        "hotpotqa",
        "HotpotQA's answers, with ReadTwice",
        answer_only,
        preprocessor=f"{_PACKAGE}.preprocessor:HotpotQAPreprocessor",
        model=f"{_PACKAGE}.model:HotpotQA",
        # 90,447 questions of about 10 segments.
        recipe={
            "num_examples": 904_470,
            "learning_rate": 3e-5,
            "best_metric": "f1",
        },
    ),
    _task(
        "triviaqa",
        "TriviaQA: questions about several pages, with ReadTwice",
        triviaqa,
        options=TriviaQAOptions,
        max_metric=100.0,
        # 61,888 questions of about 10 segments.
        recipe={
            "num_examples": 618_880,
            "learning_rate": 1e-5,
            "best_metric": "f1",
        },
    ),
    _task(
        "narrativeqa",
        "NarrativeQA: questions about whole books, with ReadTwice",
        narrativeqa,
        preprocessing_config=f"{_PACKAGE}.preprocessor:NarrativeQAPreprocessingConfig",
        preprocessor=f"{_PACKAGE}.preprocessor:NarrativeQAPreprocessor",
        # 32,747 questions about stories of about 200 segments.
        recipe={
            "num_examples": 6_549_400,
            "learning_rate": 5e-6,
            "best_metric": "rouge_l",
        },
        reading=("data_split",),
        max_metric=100.0,
    ),
)
