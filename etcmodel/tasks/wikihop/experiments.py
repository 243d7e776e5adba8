"""WikiHop's experiments: rows of Table 3 of the ETC paper."""

from etcmodel.tasks.registry import Experiment

_LARGE = {
    "preset": "large",
    "epochs": 10,
    "learning_rate": 5e-5,
    "grad_checkpointing_period": 1,
}

EXPERIMENTS = {
    "etc/wikihop": Experiment(
        "base without the hard g2l mask, the best base model",
        {"use_hard_g2l_mask": False},
    ),
    "etc/wikihop_hard_g2l": Experiment("base with the hard g2l mask"),
    "etc/wikihop_shared": Experiment(
        "with the mask and shared projections", {"preset": "base_shared"}
    ),
    "etc/wikihop_flat": Experiment(
        "with the mask and flat structure", {"flat_sequence": True}
    ),
    "etc/wikihop_lamb": Experiment(
        "as etc/wikihop, with LAMB instead of AdamW",
        {"use_hard_g2l_mask": False, "optimizer": "lamb"},
    ),
    "etc/wikihop_large": Experiment("large, with the mask", _LARGE),
    "etc/wikihop_large_lamb": Experiment(
        "the same with LAMB", {**_LARGE, "optimizer": "lamb"}
    ),
}
