"""The experiments of ReadTwice's pre-training, from its paper."""

from etcmodel.tasks.registry import Experiment

EXPERIMENTS = {
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
}
