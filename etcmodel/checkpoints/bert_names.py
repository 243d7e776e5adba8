"""Names of the weights of BERT and similar encoders in three file formats.

Each weight has one common name. It is Hugging Face's name in a `bert` model,
except that parameters are called as in TensorFlow
(`encoder.layer.0.attention.self.query.kernel`, `embeddings.LayerNorm.gamma`,
`embeddings.word_embeddings`). The masked language model's head has
`mlm.dense.kernel`, `mlm.LayerNorm.gamma`, `mlm.bias` and so on.
"""

import re
from collections.abc import Iterable

TOKENS = "embeddings.word_embeddings"
POSITIONS = "embeddings.position_embeddings"
TYPES = "embeddings.token_type_embeddings"
HEAD_BIAS = "mlm.bias"
# The head's output layer. Its kernel is usually the token table, and its bias
# is `HEAD_BIAS`. A file that stores shared tensors once may have only these
# names.
DECODER_KERNEL, DECODER_BIAS = "mlm.decoder.kernel", "mlm.decoder.bias"

# Parts of a layer: dense layers (kernel and bias) and normalizations.
DENSE = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
NORMS = ("attention.output.LayerNorm", "output.LayerNorm")

# Patterns and their replacements, applied in order.
_HEAD = (
    (
        r"^(cls\.predictions\.transform|lm_head)\.dense\.|^vocab_transform\.",
        "mlm.dense.",
    ),
    (
        r"^(cls\.predictions\.transform\.LayerNorm|lm_head\.layer_norm"
        r"|vocab_layer_norm)\.",
        "mlm.LayerNorm.",
    ),
    (
        r"^(cls\.predictions\.(output_)?bias|lm_head\.bias"
        r"|vocab_projector\.bias)$",
        HEAD_BIAS,
    ),
    (
        r"^(cls\.predictions\.decoder|lm_head\.decoder|vocab_projector)\.",
        "mlm.decoder.",
    ),
)
_DISTILBERT = (
    (r"^transformer\.layer\.(\d+)\.", r"encoder.layer.\1."),
    (r"\.attention\.q_lin\.", ".attention.self.query."),
    (r"\.attention\.k_lin\.", ".attention.self.key."),
    (r"\.attention\.v_lin\.", ".attention.self.value."),
    (r"\.attention\.out_lin\.", ".attention.output.dense."),
    (r"\.sa_layer_norm\.", ".attention.output.LayerNorm."),
    (r"\.ffn\.lin1\.", ".intermediate.dense."),
    (r"\.ffn\.lin2\.", ".output.dense."),
    (r"\.output_layer_norm\.", ".output.LayerNorm."),
)
HUGGING_FACE = (
    (r"^(bert|roberta|distilbert|electra)\.", ""),
    *_HEAD,
    *_DISTILBERT,
    (r"LayerNorm\.weight$", "LayerNorm.gamma"),
    (r"LayerNorm\.bias$", "LayerNorm.beta"),
    (r"_embeddings\.weight$", "_embeddings"),
    (r"\.weight$", ".kernel"),
)
# Names in Google's own code.
ORIGINAL = (
    (r"/", "."),
    (r"^bert\.", ""),
    (r"^encoder\.layer_(\d+)\.", r"encoder.layer.\1."),
    *_HEAD,
)
# Paths of attributes of the Model Garden's encoders. A layer's index in a
# functional encoder may vary, so the attributes after it identify the layer.
_LAYER = r"^(?:.*/)?_transformer_layers/(\d+)/"
MODEL_GARDEN = (
    (r"/\.ATTRIBUTES/VARIABLE_VALUE$", ""),
    (r"^.*masked_lm/embedding_table$", TOKENS),
    (r"^.*masked_lm/dense/", "mlm.dense."),
    (r"^.*masked_lm/layer_norm/", "mlm.LayerNorm."),
    (r"^.*masked_lm/output_bias\.Sbias$", "mlm.bias"),
    (
        r"^(.*/)?(_embedding_layer|layer_with_weights-0)/embeddings$",
        TOKENS,
    ),
    (
        r"^.*(_position_embedding_layer|layer_with_weights-1)/embeddings$",
        POSITIONS,
    ),
    (r"^.*(_type_embedding_layer|layer_with_weights-2)/embeddings$", TYPES),
    (
        r"^.*(_embedding_norm_layer|layer_with_weights-3)/(gamma|beta)$",
        r"embeddings.LayerNorm.\2",
    ),
    (
        r"^(?:.*/)?layer_with_weights-(\d+)/(?=_)",
        lambda found: f"_transformer_layers/{int(found[1]) - 4}/",
    ),
    (
        _LAYER + r"_attention_layer/_(query|key|value)_dense/",
        r"encoder.layer.\1.attention.self.\2.",
    ),
    (
        _LAYER + r"_attention_layer/_output_dense/",
        r"encoder.layer.\1.attention.output.dense.",
    ),
    (
        _LAYER + r"_attention_layer_norm/",
        r"encoder.layer.\1.attention.output.LayerNorm.",
    ),
    (_LAYER + r"_intermediate_dense/", r"encoder.layer.\1.intermediate.dense."),
    (_LAYER + r"_output_dense/", r"encoder.layer.\1.output.dense."),
    (_LAYER + r"_output_layer_norm/", r"encoder.layer.\1.output.LayerNorm."),
)

# Patterns of weights that are not lifted, and the reason.
UNKNOWN = "not of an encoder like BERT's"
LEFT_OUT = (
    (
        r"(^|\.|/)(_?pooler|_pooler_layer|layer_with_weights-\d+)(\.|/)",
        "pooler",
    ),
    (r"seq_relationship", "next-sentence head"),
    (r"position_ids$", "numbers of the positions"),
    (r"token_type_ids$", "zeros, the default token types"),
    (
        r"^(discriminator_predictions|generator_predictions|generator_lm_head)"
        r"\.",
        "ELECTRA's head",
    ),
    (
        r"(^|[./])(adam_[mv]|global_step|save_counter|_?optimizer)($|[./])"
        r"|OPTIMIZER_SLOT|_OBJECT_GRAPH$",
        "of the optimizer and the training",
    ),
)


def outer_prefix(names: Iterable[str]) -> str:
    """Returns the prefix that wrappers add to the names of all weights.

    Example: "module." for names such as
    "module.bert.embeddings.LayerNorm.weight" and "module.cls.predictions.bias".

    Raises:
        ValueError: the names belong to several encoders.
    """
    found = {
        match[1]
        for name in names
        if (match := re.match(_EMBEDDINGS, name)) is not None
    }
    if len(found) > 1:
        raise ValueError(
            "There are several encoders, whose names begin with "
            f"{', '.join(map(repr, sorted(found)))}. Save the encoder that you "
            "want to lift separately."
        )
    prefix = found.pop() if found else ""
    return re.sub(r"(^|\.)(bert|roberta|distilbert|electra)\.$", r"\1", prefix)


_EMBEDDINGS = (
    r"(|.*?\.)embeddings\."
    r"(word_embeddings|position_embeddings|LayerNorm)(\.|$)"
)


def common_name(name: str, replacements) -> str:
    """Converts a weight's name in a file to its common name.

    `replacements` are those of the file's format. With `ORIGINAL`,
    "bert/encoder/layer_0/output/dense/kernel" becomes
    "encoder.layer.0.output.dense.kernel". The result is meaningless for names
    that are not BERT's.
    """
    for pattern, replacement in replacements:
        name = re.sub(pattern, replacement, name)
    return name


def is_bert(names: Iterable[str]) -> bool:
    """Returns whether a TensorFlow checkpoint has BERT's token table."""
    return any(
        common_name(name, kind) == TOKENS
        for name in names
        for kind in (ORIGINAL, MODEL_GARDEN)
    )


def expected_names(num_layers: int) -> list[str]:
    """Returns the names of all weights of an encoder, in order."""
    names = [TOKENS, POSITIONS, TYPES, *_norm("embeddings.LayerNorm")]
    for i in range(num_layers):
        for part in DENSE:
            names += [f"encoder.layer.{i}.{part}.{x}" for x in _DENSE_WEIGHTS]
        for part in NORMS:
            names += _norm(f"encoder.layer.{i}.{part}")
    return names


def head_names() -> list[str]:
    """Returns the names of the weights of the masked language model's head."""
    dense = [f"mlm.dense.{x}" for x in _DENSE_WEIGHTS]
    return [*dense, *_norm("mlm.LayerNorm"), HEAD_BIAS]


_DENSE_WEIGHTS = ("kernel", "bias")


def _norm(name):
    return [f"{name}.gamma", f"{name}.beta"]


def expected_shape(name: str, sizes) -> tuple[int | None, ...]:
    """Returns the shape of a weight; a size is None if it is unknown."""
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    if name == HEAD_BIAS:
        return (sizes["vocab_size"],)
    if name.startswith("embeddings.") and "LayerNorm" not in name:
        return (sizes["vocab_size"] if name == TOKENS else None, hidden)
    is_first = ".intermediate." in name
    columns = inner if is_first else hidden
    if not name.endswith(".kernel"):
        return (columns,)
    is_second = name.endswith(".output.dense.kernel") and (
        ".attention." not in name
    )
    return (inner if is_second else hidden, columns)


def why_left_out(name: str) -> str:
    """Returns why the weight with this name in the file is not used."""
    for pattern, reason in LEFT_OUT:
        if re.search(pattern, name):
            return reason
    return UNKNOWN
