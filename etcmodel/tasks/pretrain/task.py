"""Pre-training of ETC: options, and experiments of the ETC paper."""

import dataclasses
import math

from etcmodel.datasets import documents
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import read_experiments

_PACKAGE = "etcmodel.tasks.pretrain"


@dataclasses.dataclass(frozen=True)
class PretrainPreprocessingConfig:
    """Sizes of stored examples; the defaults are the paper's.

    Attributes:
        long_length: number of tokens of an example, which holds a part of a
            long document or several short documents.
        global_length: maximum number of sentences of an example.
        min_sentences: documents with fewer sentences are left out.
        documents: how to split plain text files into documents: "blank_lines"
            at empty lines, "file" for one document per file, "wikitext" at
            articles of the WikiText corpora; "auto" for "wikitext" if the file
            starts with a heading of such an article, otherwise "blank_lines".
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


@dataclasses.dataclass
class PretrainOptions:
    """Options of masking and losses.

    Attributes:
        cpc_fraction_to_mask: share of the sentences that is masked for CPC.
        mlm_fraction_to_mask: share of the words outside of masked sentences
            that is masked for MLM.
        max_predictions: maximum number of masked tokens of an example that are
            predicted; 0 for a quarter of the long length.
        mlm_weight: weight of the masked-token loss, 0 for none.
        cpc_weight: weight of the CPC loss, 0 for none. Both weights are divided
            by their sum.
    """

    cpc_fraction_to_mask: float = 0.1
    mlm_fraction_to_mask: float = 0.15
    max_predictions: int = 0
    mlm_weight: float = 0.8
    cpc_weight: float = 0.2


TASK = TaskSpec(
    name="pretrain",
    summary="pre-training of ETC on texts: masked words and sentences",
    dataset=documents,
    preprocessing_config=PretrainPreprocessingConfig,
    preprocessor=f"{_PACKAGE}.preprocessor:PretrainPreprocessor",
    model=f"{_PACKAGE}.model:EtcPretraining",
    options=PretrainOptions,
    has_answers=False,
    reading=("documents",),
    # ETC paper, section 4.1 and Appendix C. The paper does not give the number
    # of warm-up steps; here it is a tenth of all steps. With the hard mask
    # (section 4.2), global tokens only attend to their own sentences.
    recipe={
        "batch_size": 512,
        "validation_batch_size": 512,
        "learning_rate": math.sqrt(8) * 1e-3,
        "train_steps": 63_000,
        "validation_interval": 1_000,
        "optimizer": "lamb",
        "best_metric": "mlm_accuracy",
        "use_hard_g2l_mask": True,
    },
    experiments=read_experiments(__file__),
)
