"""Natural Questions' experiments: rows of Table 2 of the ETC paper.

Lengths (512, 4,096, 8,192), the stride of windows and fixed blocks are chosen
when the records are preprocessed.
"""

from etcmodel.tasks.registry import Experiment

EXPERIMENTS = {
    "etc/nq": Experiment("base, 4,096 long and 230 global tokens"),
    "etc/nq_no_hard_g2l": Experiment(
        "base without the hard g2l mask", {"use_hard_g2l_mask": False}
    ),
    "etc/nq_shared": Experiment(
        "base with shared projections", {"preset": "base_shared"}
    ),
    "etc/nq_2x_radius": Experiment(
        "base with twice the local radius", {"local_radius": 169}
    ),
    "etc/nq_2x_vocabulary": Experiment(
        "base with twice the relative labels",
        {"relative_pos_max_distance": 24, "relative_vocab_size": 64},
    ),
    "etc/nq_large": Experiment(
        "large",
        {
            "preset": "large",
            "epochs": 2,
            "learning_rate": 3e-5,
            "grad_checkpointing_period": 1,
        },
    ),
}
