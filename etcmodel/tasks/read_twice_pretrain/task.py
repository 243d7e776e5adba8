"""Pre-training of ReadTwice: the experiments of its paper."""

from etcmodel.datasets import documents
from etcmodel.pipeline.spec import Experiment
from etcmodel.pipeline.spec import TaskSpec

_PACKAGE = "etcmodel.tasks.read_twice_pretrain"

TASK = TaskSpec(
    name="read_twice_pretrain",
    summary="pre-training of ReadTwice on documents with mentions",
    dataset=documents,
    sizes=f"{_PACKAGE}.features:PretrainFeatureConfig",
    encoder=f"{_PACKAGE}.features:PretrainEncoder",
    trainer=f"{_PACKAGE}.trainer:register",
    format_size="documents",
    experiments={
        "read_twice/pretrain": Experiment(
            "memories of entity mentions, with coreference loss"
        ),
        "read_twice/pretrain_single_segment": Experiment(
            "each segment alone (Tables 3 and 4: SS)",
            {"cross_block_attention_mode": "block"},
        ),
        "read_twice/pretrain_no_coreference": Experiment(
            "no coreference loss (Table 5)", {"coreference_weight": 0.0}
        ),
        "read_twice/pretrain_cls": Experiment(
            "a memory for each segment (Table 3: CLS)",
            {"preset": "base_cls", "coreference_weight": 0.0},
        ),
        "read_twice/pretrain_sts": Experiment(
            "a memory for every 32 tokens (Table 3: STS)",
            {"preset": "base_sts", "coreference_weight": 0.0},
        ),
    },
)
