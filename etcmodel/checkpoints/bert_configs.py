"""Reads the configuration of BERT, RoBERTa and similar encoders."""

import os
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from etcmodel import errors
from etcmodel import json_objects

# Advice in errors about weights of LoRA and similar adapters.
MERGE_ADAPTER = (
    "It is an adapter: merge it into its model with PEFT's "
    "`merge_and_unload()`, save the result with `save_pretrained`, and pass "
    "that directory."
)
_FILES = ("config.json", "bert_config.json")
_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
)
_DISTILBERT = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
# In these models, the first token's position is the padding token's id plus 1.
_ROBERTA = ("roberta", "xlm-roberta", "camembert")
_ARCHITECTURES = ("bert", *_ROBERTA, "distilbert", "electra")
# Other `model_type` -> why its weights cannot be used.
_REFUSED = {
    "albert": "its layers share one set of weights and its embeddings are "
    "factorized",
    "big_bird": "it was trained with random and sliding blocks of attention",
    "deberta": "its attention scores depend on relative positions",
    "deberta-v2": "its attention scores depend on relative positions",
    "ernie": "it may add task types to its embeddings",
    "longformer": "it has separate projections for global attention",
    "modernbert": "it has rotary positions and gated feed-forward layers",
    "mpnet": "its attention scores depend on relative positions",
    "nomic_bert": "it has rotary positions and gated feed-forward layers",
    "roberta-prelayernorm": "it normalizes before each sublayer, not after it",
    "xlm-roberta-xl": "it normalizes before each sublayer, not after it",
}
# Activations, as defined in Hugging Face's code.
_ACTIVATIONS = {
    "gelu": "exact_gelu",
    "gelu_fast": "gelu",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_python": "exact_gelu",
    "relu": "relu",
}


class BertConfig(NamedTuple):
    """Configuration of a BERT-like encoder, read before its weights.

    Attributes:
        file: the configuration file.
        architecture: "bert", "roberta", "xlm-roberta", "camembert",
            "distilbert" or "electra".
        sizes: `vocab_size`, `hidden_size`, `num_hidden_layers`,
            `num_attention_heads`, `intermediate_size` and `hidden_act`, named
            as in `EtcConfig`.
        layer_norm_epsilon: added to the variances.
        first_position: row of the first token in the position table.
        has_types: whether the weights must include token types.
        is_tied: whether the masked language model uses the token table as its
            output layer.
    """

    file: str
    architecture: str
    sizes: dict[str, Any]
    layer_norm_epsilon: float
    first_position: int
    has_types: bool
    is_tied: bool


def read_json(file: str) -> dict:
    """Reads a JSON object; raises a ValueError for other content."""
    with tf.io.gfile.GFile(file, "rb") as stream:
        try:
            return json_objects.parse(stream.read())
        except ValueError as error:
            raise ValueError(f"{file}: {error}.") from None


def read_optional_json(folder: str, name: str) -> dict:
    """Reads a JSON object from a file; {} if the file does not exist."""
    file = find(folder, name)
    return {} if file is None else read_json(file)


def find(folder: str, *names: str) -> str | None:
    """Returns the path of the first file in the list that exists."""
    for name in names:
        if tf.io.gfile.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    return None


def read_config(folder: str, path: str) -> BertConfig:
    """Reads the configuration in a directory; `path` is for error messages.

    Raises:
        FileNotFoundError: the directory has no configuration.
        ValueError: the model cannot be lifted (see `lifting.lift`).
    """
    file = find(folder, *_FILES)
    if file is None:
        raise FileNotFoundError(_no_config(folder, path))
    # Hugging Face's classes have this default, too.
    config = {"hidden_act": "gelu", "activation": "gelu", **read_json(file)}
    architecture = config.get("model_type", "bert")
    _check(config, architecture, file)
    names = {name: name for name in _SIZES}
    if architecture == "distilbert":
        names |= _DISTILBERT
    missing = [name for name in names.values() if name not in config]
    if missing:
        raise ValueError(
            f"{file} lacks {', '.join(missing)}. Expected the configuration "
            "of BERT or RoBERTa."
        )
    sizes = {name: config[other] for name, other in names.items()}
    if sizes["hidden_act"] not in _ACTIVATIONS:
        raise ValueError(
            f"{file}: hidden_act is {sizes['hidden_act']!r}, expected one of "
            f"{', '.join(sorted(_ACTIVATIONS))}."
        )
    sizes["hidden_act"] = _ACTIVATIONS[sizes["hidden_act"]]
    first = 0
    if architecture in _ROBERTA:
        padding = config.get("pad_token_id")
        first = (1 if padding is None else int(padding)) + 1
    return BertConfig(
        file=file,
        architecture=architecture,
        sizes=sizes,
        layer_norm_epsilon=float(config.get("layer_norm_eps", 1e-12)),
        first_position=first,
        has_types=bool(config.get("type_vocab_size"))
        and architecture != "distilbert",
        is_tied=config.get("tie_word_embeddings", True),
    )


def _check(config, architecture, file) -> None:
    """Raises a ValueError if a model's computation differs from BERT's."""
    if architecture not in _ARCHITECTURES:
        why = _REFUSED.get(architecture)
        raise ValueError(
            f"{file}: model_type is {architecture!r}, which cannot be lifted"
            f"{f': {why}' if why else ''}. Use one of the types "
            f"{', '.join(_ARCHITECTURES)}."
        )
    if config.get("quantization_config"):
        raise ValueError(
            f"{file} has a quantization_config. Save the weights without "
            "quantization, in float32, float16 or bfloat16."
        )
    for name, expected in (
        ("position_embedding_type", "absolute"),
        ("embedding_size", config.get("hidden_size")),
        ("is_decoder", False),
    ):
        if config.get(name, expected) not in (expected, None):
            raise ValueError(
                f"{file}: {name} is {config[name]!r}, expected {expected!r}, "
                "as in BERT."
            )


def check_exists(path: str) -> None:
    """Raises a FileNotFoundError with advice if nothing exists at a path.

    The path is a directory, a file, or a checkpoint's path without `.index`.
    """
    if any(tf.io.gfile.exists(x) for x in (path, f"{path}.index")):
        return
    raise FileNotFoundError(
        f"There is no directory or checkpoint {path}. "
        f"{errors.download_advice(path)}"
    )


def _no_config(folder, path) -> str:
    text = f"{path}: there is no {' or '.join(_FILES)} in {folder or '.'}."
    if find(folder, "adapter_config.json"):
        return f"{text} {MERGE_ADAPTER}"
    snapshots = os.path.join(folder, "snapshots")
    if tf.io.gfile.isdir(snapshots) and tf.io.gfile.listdir(snapshots):
        found = sorted(tf.io.gfile.listdir(snapshots))
        return f"{text} Pass a snapshot: {os.path.join(snapshots, found[-1])}"
    return (
        f"{text} Pass the directory of a BERT or RoBERTa, or a checkpoint with "
        "its bert_config.json beside it."
    )
