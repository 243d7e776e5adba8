"""HotpotQA's experiments: rows of Table 3 of the ETC paper."""

from etcmodel.tasks.registry import Experiment

EXPERIMENTS = {
    "etc/hotpotqa": Experiment("base, the paper's best base row"),
    "etc/hotpotqa_no_hard_g2l": Experiment(
        "base without the hard g2l mask", {"use_hard_g2l_mask": False}
    ),
    "etc/hotpotqa_shared": Experiment(
        "base with shared projections", {"preset": "base_shared"}
    ),
    "etc/hotpotqa_flat": Experiment(
        "base with flat structure", {"flat_sequence": True}
    ),
    "etc/hotpotqa_bio": Experiment(
        "base with a label for every token of an answer",
        {"answer_encoding": "bio"},
    ),
    "etc/hotpotqa_2x_radius": Experiment(
        "base with twice the local radius", {"local_radius": 169}
    ),
    "etc/hotpotqa_2x_vocabulary": Experiment(
        "base with twice the relative labels",
        {"relative_pos_max_distance": 24, "relative_vocab_size": 64},
    ),
    "etc/hotpotqa_large": Experiment(
        "large",
        {
            "preset": "large",
            "epochs": 5,
            "batch_size": 32,
            "learning_rate": 3e-5,
            "grad_checkpointing_period": 1,
        },
    ),
}
