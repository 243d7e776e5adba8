"""Pre-training of ETC: the experiments of its paper."""

import dataclasses

from etcmodel.datasets import documents
from etcmodel.pipeline.spec import Experiment
from etcmodel.pipeline.spec import TaskSpec

_PACKAGE = "etcmodel.tasks.pretrain"


@dataclasses.dataclass(frozen=True)
class PretrainFeatureConfig:
    """Sizes of what is stored; the defaults are the paper's.

    Attributes:
        long_length: tokens of an example: of a part of a long document, or of
            several short ones.
        global_length: its sentences.
        min_sentences: documents with fewer are left out.
        documents: what a document is in files of plain text: "blank_lines" for
            empty lines between them, "file" if each file is one, "wikitext"
            for articles of the WikiText corpora; "auto" for "wikitext" if a
            heading of such an article comes first, otherwise "blank_lines".
    """

    long_length: int = 4096
    global_length: int = 256
    min_sentences: int = 7
    documents: str = "auto"

    def __post_init__(self):
        for name in ("long_length", "global_length", "min_sentences"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, expected at least 1."
                )
        documents.check_documents(self.documents)


TASK = TaskSpec(
    name="pretrain",
    summary="pre-training of ETC on texts: masked words and sentences",
    dataset=documents,
    sizes=PretrainFeatureConfig,
    encoder=f"{_PACKAGE}.features:PretrainEncoder",
    trainer=f"{_PACKAGE}.trainer:register",
    format_size="documents",
    experiments={
        "etc/pretrain": Experiment("base"),
        "etc/pretrain_shared": Experiment(
            "base with shared projections", {"preset": "base_shared"}
        ),
        "etc/pretrain_no_cpc": Experiment(
            "base, masked words alone (Tables 2 to 5: no CPC)",
            {"cpc_weight": 0.0},
        ),
        # Lifted from RoBERTa, of a larger batch, with another rate.
        "etc/pretrain_large": Experiment(
            "large, to begin with RoBERTa",
            {
                "preset": "large",
                "batch_size": 1024,
                "learning_rate": 2e-3,
                "grad_checkpointing_period": 1,
            },
        ),
    },
)
