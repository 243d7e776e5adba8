"""Warm starts: copies weights of BERT-like encoders into ETC or ReadTwice.

The papers call this lifting (ETC paper, section 3.6 and Appendix D; ReadTwice
paper, section 4.1).
"""

import dataclasses
import math
import os
import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.checkpoints import bert_names
from etcmodel.checkpoints import files
from etcmodel.checkpoints import token_rows
from etcmodel.checkpoints.bert_files import Bert
from etcmodel.layers import keras_compat
from etcmodel.models import EtcConfig
from etcmodel.models import ReadTwiceConfig
from etcmodel.models.pretraining_heads import LanguageModelHead
from etcmodel.weight_paths import get_weight_paths

GLOBAL_TOKENS = ("mean", "cls", "keep")
ABSOLUTE_POSITIONS = ("none", "paragraph")

# Pattern of a weight's path in the encoder, and the part of BERT that the
# weight is copied from. Groups match the stack and the index of the layer.
_PARTS = (
    (r"(?:long_|global_)?emb_layer_norm", "embeddings.LayerNorm"),
    (
        r"(STACK)/ATTENTION_(\d+)/inner_layer"
        r"/\w+_(query|key|value)_projection/linear",
        r"attention.self.\3",
    ),
    (
        r"(STACK)/ATTENTION_(\d+)/inner_layer/(?:\w+_)?output_projection",
        "attention.output.dense",
    ),
    (
        r"(STACK)/ATTENTION_(\d+)/normalization_layers_\d",
        "attention.output.LayerNorm",
    ),
    (
        r"(STACK)/FEED_FORWARD_(\d+)/inner_layer/layers_0",
        "intermediate.dense",
    ),
    (r"(STACK)/FEED_FORWARD_(\d+)/inner_layer/layers_1", "output.dense"),
    (
        r"(STACK)/FEED_FORWARD_(\d+)/normalization_layers_0",
        "output.LayerNorm",
    ),
)
_SECOND_READ = "second_transformer"
_WORDS = {
    "STACK": "global_local_transformer_layers|transformer_with_side_inputs|"
    + _SECOND_READ,
    "ATTENTION": r"(?:fused_att|attention)_layers",
    "FEED_FORWARD": r"(?:long_|global_)?feed_forward_layers",
}


@dataclasses.dataclass
class LiftReport:
    """Describes where the value of each weight comes from.

    Attributes:
        lifted: weight of the model -> its origin, or its initial value.
        used: weight of the source -> the model's weights that it was copied to.
        left_out: weight of the source -> why it was not used.
        unmatched: pieces of the vocabulary without a row in the source.
        notes: remaining differences from the source, as sentences.
    """

    lifted: dict[str, str]
    used: dict[str, list[str]]
    left_out: dict[str, str]
    unmatched: Sequence[str] = ()
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        lines = ["Weights of the model"]
        lines += [f"  {name}: {text}" for name, text in self.lifted.items()]
        lines += ["Weights of the source"]
        for name, paths in self.used.items():
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            lines.append(f"  {name}: {paths[0]}{more}")
        lines += [
            f"  {name}: left out ({why})" for name, why in self.left_out.items()
        ]
        if self.unmatched:
            lines.append("Pieces of the vocabulary without a row in the source")
            lines.append("  " + " ".join(self.unmatched))
        if self.notes:
            lines += ["Notes", *(f"  {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"


def lifted_config(
    source: Bert,
    config_class: type = EtcConfig,
    preset: str = "base",
    absolute_positions: str = "none",
    vocab_file: str | os.PathLike | None = None,
    **changes: Any,
) -> EtcConfig | ReadTwiceConfig:
    """Returns a configuration that fits the weights of a BERT-like encoder.

    Args:
        source: the encoder to copy from.
        config_class: `EtcConfig` or `ReadTwiceConfig`.
        preset: supplies all values that BERT does not define.
        absolute_positions: see `EtcConfig`; "none" as in the paper.
        vocab_file: as for `lift`; determines `vocab_size`.
        **changes: values that replace all others, such as `local_radius=40`.

    Raises:
        ValueError: the preset does not exist, or values conflict.
    """
    values = dict(source.sizes)
    values["vocab_size"] = token_rows.count_tokens(source, vocab_file)
    num_positions = len(source.weights[bert_names.POSITIONS])
    if config_class is ReadTwiceConfig:
        values["max_seq_length"] = num_positions
    elif absolute_positions not in ABSOLUTE_POSITIONS:
        raise ValueError(
            f"absolute_positions is {absolute_positions!r}, expected one of "
            f"{', '.join(ABSOLUTE_POSITIONS)}."
        )
    elif absolute_positions == "paragraph":
        values["absolute_positions"] = absolute_positions
        values["max_absolute_position_embeddings"] = num_positions
    if config_class is ReadTwiceConfig and absolute_positions != "none":
        raise ValueError(
            "absolute_positions applies to ETC only: ReadTwice uses BERT's "
            "positions in every segment. Omit it."
        )
    config = config_class.from_preset(preset, **{**values, **changes})
    config.validate()
    return config


def lift(
    model: tf.keras.Model,
    source: Bert,
    vocab_file: str | os.PathLike | None = None,
    global_tokens: str = "mean",
    head: LanguageModelHead | None = None,
    own_text_bias: float = 0.0,
) -> LiftReport:
    """Copies the weights of BERT or a similar model into an encoder.

    Query, key and value projections are copied to every part of the attention
    that has its own. Output projections, feed-forward layers and normalizations
    are copied to both long and global tokens. Relative labels start at zero, so
    they have no effect before training. All token types start as BERT's first
    token type.

    Both reads of a `ReadTwiceModel` are initialized. If BERT has more layers
    than the first read, the remaining layers initialize the second read.
    Otherwise BERT's last layers initialize it.

    Example:
        source = read_bert("bert-base-uncased")
        vocab_file = write_vocabulary(source.vocab_file, "lifted")
        encoder = build_encoder(lifted_config(source), "paragraphs")
        print(lift(encoder, source))

    Args:
        model: an `EtcModel` or `ReadTwiceModel`, or a model with one inside;
            see `load_checkpoint`.
        source: the encoder to copy from.
        vocab_file: the vocabulary of the model. Each of its tokens gets the row
            of the equal token in the source. The default is the vocabulary that
            `write_vocabulary` writes.
        global_tokens: initial embeddings of global tokens, which BERT lacks.
            "mean": the mean of all tokens' embeddings. "cls": the embedding of
            [CLS]. "keep": the source's row if it has one, else the mean. BERT
            attends to [CLS] if nothing else is relevant. With "cls", dozens of
            [CLS] tokens would therefore draw nearly all attention; "mean"
            avoids this.
        head: a masked language model head to initialize, too. It predicts like
            the source's head if both have the same `hidden_act` and
            `layer_norm_epsilon`.
        own_text_bias: for ETC, a bias on the attention scores from a global
            token to the tokens of its own sentence. If all other scores are
            equal, a sentence of 20 tokens next to 100 other global tokens gets
            a sixth of the attention with 0, and four fifths with 3.

    Raises:
        ValueError: sizes differ; the message names both, and the model is
            unchanged.
    """
    if global_tokens not in GLOBAL_TOKENS:
        raise ValueError(
            f"global_tokens is {global_tokens!r}, expected one of "
            f"{', '.join(GLOBAL_TOKENS)}."
        )
    encoder = files.find_encoder(model)
    keras_compat.build_once(encoder, None)
    _check_sizes(encoder.config, source)
    lifting = _Lifting(
        encoder, source, vocab_file, global_tokens, own_text_bias
    )
    weights = get_weight_paths(encoder)
    values = {path: lifting.value(path, x) for path, x in weights.items()}
    if head is not None:
        keras_compat.build_once(head, (None, source.sizes["hidden_size"]))
        lifting.check_head(head)
        weights |= {f"head/{k}": x for k, x in get_weight_paths(head).items()}
        values |= {x: lifting.head_value(x) for x in weights if "head/" in x}
    wrong = [
        f"{path} {list(weights[path].shape)}, in the source {list(x.shape)}"
        for path, x in values.items()
        if x is not None and tuple(weights[path].shape) != x.shape
    ]
    if wrong:
        raise ValueError(
            f"{source.path} does not fit into {encoder.name}, and nothing has "
            "been lifted. Set the source's sizes: " + "; ".join(wrong) + "."
        )
    for path, x in values.items():
        if x is not None:
            weights[path].assign(x)
    return lifting.report()


def _check_sizes(config, source) -> None:
    """Raises a ValueError if sizes differ, even where shapes agree."""
    names = [
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
        "hidden_act",
    ]
    has_second_read = 0
    if getattr(config, "second_read_type", "from_scratch") != "from_scratch":
        has_second_read = config.second_read_num_new_layers
    if not has_second_read:
        names.append("num_hidden_layers")
    wrong = [
        f"{name} {getattr(config, name)!r}, in the source "
        f"{source.sizes[name]!r}"
        for name in names
        if getattr(config, name) != source.sizes[name]
    ]
    layers = source.sizes["num_hidden_layers"]
    if has_second_read and (
        has_second_read > layers
        or layers - config.num_hidden_layers not in (0, has_second_read)
    ):
        wrong.append(
            f"num_hidden_layers {config.num_hidden_layers} and "
            f"second_read_num_new_layers {has_second_read}, in the source "
            f"{layers} layers in all, or in the first read alone"
        )
    if config.embedding_size not in (None, config.hidden_size):
        wrong.append(
            f"embedding_size {config.embedding_size}, in the source "
            f"{source.sizes['hidden_size']}"
        )
    if getattr(config, "use_pre_activation_order", False):
        wrong.append("use_pre_activation_order True, in the source False")
    if wrong:
        raise ValueError(
            f"{source.path} does not fit, and nothing has been lifted. Set the "
            "source's sizes: " + "; ".join(wrong) + "."
        )


class _Lifting:
    """Computes the values of weights, and records where they come from."""

    def __init__(
        self, encoder, source, vocab_file, global_tokens, own_text_bias
    ):
        self.config = encoder.config
        self.name = encoder.name
        self.source = source
        self.global_tokens = global_tokens
        self.own_text_bias = own_text_bias
        self.lifted: dict[str, str] = {}
        self.used: dict[str, list[str]] = {}
        self.tokens = token_rows.find_token_rows(source, vocab_file)
        self.rows = self.tokens.rows
        self._check_tokens()
        self.notes = self.tokens.notes
        epsilon = source.layer_norm_epsilon
        if epsilon != 1e-12:
            self.notes.append(
                f"The epsilon of normalizations is {epsilon:g} in the source, "
                "and 1e-12 here."
            )

    def _check_tokens(self):
        if self.tokens.path is None and self.global_tokens != "keep":
            raise ValueError(
                f"{self.source.path} has no vocabulary beside it, so the "
                "ids of global tokens are unknown. Pass vocab_file, or "
                "global_tokens='keep'."
            )
        if len(self.rows) != self.config.vocab_size:
            raise ValueError(
                f"vocab_size of {self.name} is {self.config.vocab_size}, "
                f"expected {len(self.rows)}, the number of tokens in "
                f"{self.tokens.path or self.source.path}."
            )

    def value(self, path, weight):
        """Returns the new value of a weight; None to keep it."""
        if path == "token_emb_lookup/embedding_table":
            return self._tokens(path, weight)
        if path == "segment_emb_lookup/embedding_table":
            first = self._types()
            self._note(path, "the first token type in every row", "TYPES")
            return np.tile(first, [weight.shape[0], 1])
        if path.startswith("position_emb_lookup"):
            return self._positions(path, weight)
        if path.endswith(("relative_emb_table", "relative_bias_table")):
            return self._relative(path, weight)
        name = self._part(path)
        if name is None:
            self.lifted[path] = "initial value"
            return None
        self._note(path, name, name)
        return self.source.weights[name]

    def _relative(self, path, weight):
        """Returns zeros, except `own_text_bias` for a token's own text."""
        values = np.zeros(weight.shape, np.float32)
        self.lifted[path] = "zeros"
        if self.own_text_bias and path.endswith(
            "global_qkv_attention/relative_bias_table"
        ):
            # See `make_global_local_transformer_side_inputs_from_example_ids`.
            own = 2 * self.config.relative_pos_max_distance + 2
            # Attention divides scores, including biases, by this.
            values[own] = self.own_text_bias * math.sqrt(
                self.config.hidden_size // self.config.num_attention_heads
            )
            self.lifted[path] += (
                f", but {self.own_text_bias:g} for a global token's own text"
            )
        return values

    def check_head(self, head):
        for name, own, other in (
            ("hidden_act", head.hidden_act, self.source.sizes["hidden_act"]),
            (
                "layer_norm_epsilon",
                head.layer_norm_epsilon,
                self.source.layer_norm_epsilon,
            ),
        ):
            if own != other:
                self.notes.append(
                    f"The head's {name} is {own!r}, in the source {other!r}."
                )

    def head_value(self, path):
        """Returns the new value of a head's weight; None to keep it."""
        name = path.removeprefix("head/").replace("/", ".")
        name = name.replace("layer_norm", "LayerNorm")
        name = "mlm." + name.replace("output_bias", "bias")
        if name not in self.source.weights:
            self.lifted[path] = "initial value"
            self.notes.append(f"The source's head has no {name}.")
            return None
        self._note(path, name, name)
        value = self.source.weights[name]
        if name == "mlm.bias":
            return np.where(self.rows < 0, 0.0, value[self.rows])
        return value

    def report(self) -> LiftReport:
        source = self.source
        left_out = {
            source.names[name]: _WHY_NOT.get(name, "the model has no such part")
            for name in source.weights
            if name not in self.used
        }
        return LiftReport(
            lifted=self.lifted,
            used={source.names[name]: x for name, x in self.used.items()},
            left_out=left_out | dict(source.left_out),
            unmatched=self.tokens.unmatched,
            notes=self.notes,
        )

    def _note(self, path, text, *names):
        self.lifted[path] = text
        for name in names:
            name = getattr(bert_names, name, name)
            if name in self.source.weights:
                self.used.setdefault(name, []).append(path)

    def _part(self, path) -> str | None:
        """Returns BERT's weight that a weight of the encoder is copied from."""
        part, _, kind = path.rpartition("/")
        for pattern, name in _PARTS:
            for word, expression in _WORDS.items():
                pattern = pattern.replace(word, expression)
            found = re.fullmatch(pattern, part)
            if not found:
                continue
            if found.lastindex is None:
                return f"{name}.{kind}"
            layer = int(found[2])
            if found[1] == _SECOND_READ:
                layer += (
                    self.source.sizes["num_hidden_layers"]
                    - self.config.second_read_num_new_layers
                )
            name = found.expand(name)
            return f"encoder.layer.{layer}.{name}.{kind}"
        return None

    def _types(self):
        types = self.source.weights.get(bert_names.TYPES)
        size = self.source.sizes["hidden_size"]
        return np.zeros(size, np.float32) if types is None else types[0]

    def _tokens(self, path, weight):
        table = self.source.weights[bert_names.TOKENS]
        # [vocab_size, hidden_size]
        values = np.where(
            self.rows[:, np.newaxis] < 0, np.asarray(weight), table[self.rows]
        )
        text = "rows of the same tokens"
        ids = self.tokens.global_ids
        mean = np.mean(table[: self.tokens.num_used], axis=0)
        if ids and self.global_tokens == "cls":
            values[ids] = values[self.tokens.special_ids["cls"]]
            text += "; global tokens get [CLS]'s row"
        elif ids and self.global_tokens == "mean":
            values[ids] = mean
            text += "; global tokens get the mean of the table"
            if getattr(self.config, "absolute_positions", "") == "paragraph":
                # Global tokens have the position of [CLS]. This cancels its
                # embedding and adds the mean of the other positions.
                positions = self.source.weights[bert_names.POSITIONS]
                values[ids] += np.mean(positions[1:], axis=0) - positions[0]
                text += ", plus the mean of positions less [CLS]'s position"
        elif any(self.rows[ids] < 0):
            values[[i for i in ids if self.rows[i] < 0]] = mean
            text += "; new global tokens get the mean of the table"
        self._note(path, text, "TOKENS")
        return values.astype(np.float32)

    def _positions(self, path, weight):
        table, wanted = (
            self.source.weights[bert_names.POSITIONS],
            weight.shape[0],
        )
        if wanted > len(table):
            raise ValueError(
                f"{self.name} has {wanted} absolute positions, but "
                f"{self.source.path} has {len(table)}, and nothing has been "
                "lifted. Build the model with at most that many."
            )
        if hasattr(self.config, "segment_vocab_size"):
            self._note(path, "the first positions", "POSITIONS")
            return table[:wanted]
        # The model has no token types, so positions include BERT's first type.
        text = "the first positions, with the first token type added"
        self._note(path, text, "POSITIONS", "TYPES")
        return table[:wanted] + self._types()


_WHY_NOT: Mapping[str, str] = {
    bert_names.POSITIONS: "the model has no absolute positions",
    **dict.fromkeys(
        bert_names.head_names(), "head of the masked language model"
    ),
}
