"""Reads BERT, RoBERTa and similar encoders from their files."""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.checkpoints import bert_configs
from etcmodel.checkpoints import bert_names
from etcmodel.checkpoints import bert_vocabularies
from etcmodel.checkpoints import files
from etcmodel.checkpoints import safetensors_files

# Matches the names of weights of LoRA and other adapters.
_ADAPTER = r"(^|\.)(lora_\w+|base_layer|adapters?|modules_to_save)\."


class Bert(NamedTuple):
    """A BERT-like encoder, as read from its files.

    `architecture`, `sizes` and `layer_norm_epsilon` are those of
    `bert_configs.BertConfig`.

    Attributes:
        path: the path that was read.
        weights: `<float32>` arrays, keyed by `bert_names.expected_names`,
            including the masked language model's head if the file has it.
            Kernels are `[inputs, outputs]`. Row 0 of position tables is the
            first position.
        names: common name of each weight -> its name in the file.
        left_out: name of an unused weight of the file -> why it is not used.
        vocab_file: the vocabulary in the same directory, or None.
    """

    path: str
    architecture: str
    sizes: Mapping[str, int | str]
    layer_norm_epsilon: float
    weights: Mapping[str, np.ndarray]
    names: Mapping[str, str]
    left_out: Mapping[str, str]
    vocab_file: str | None

    @property
    def has_head(self) -> bool:
        """Whether the masked language model's head was read."""
        return "mlm.dense.kernel" in self.weights

    def first_layers(self, number: int) -> "Bert":
        """Returns the encoder's first `number` layers, without its head.

        Raises a ValueError if the encoder has fewer layers.
        """
        layers = self.sizes["num_hidden_layers"]
        if not 1 <= number <= layers:
            raise ValueError(
                f"num_hidden_layers is {number}, expected 1 to {layers}, the "
                f"layers of {self.path}."
            )
        if number == layers:
            return self
        kept = bert_names.expected_names(number)
        dropped = [x for x in self.weights if x not in kept]
        return self._replace(
            sizes={**self.sizes, "num_hidden_layers": number},
            weights={x: self.weights[x] for x in kept if x in self.weights},
            names={x: y for x, y in self.names.items() if x not in dropped},
            left_out={
                **self.left_out,
                **{
                    self.names.get(x, x): f"only {number} layers are used"
                    for x in dropped
                },
            },
        )


def read_bert(path: str | os.PathLike) -> Bert:
    """Reads a BERT-like encoder.

    Supports two formats. A directory that Hugging Face's library writes has
    `config.json` and one or several safetensors files of BERT, RoBERTa,
    XLM-RoBERTa, CamemBERT, DistilBERT or ELECTRA. A TensorFlow checkpoint of
    BERT, from Google's code (TensorFlow 1) or the Model Garden, has
    `bert_config.json` in the same directory. docs/warm_starts.md lists the
    tested sources.

    `path` is the directory, or a file in it, such as "model.fp16.safetensors"
    or the checkpoint "bert_model.ckpt". In a directory with both formats,
    `model.safetensors` is read.

    Raises:
        FileNotFoundError: the configuration or the weights are missing.
        ValueError: the files belong to another type of model, some weights are
            missing, or their shapes do not match the configuration.
    """
    path = os.fspath(path)
    bert_configs.check_exists(path)
    is_folder = tf.io.gfile.isdir(path)
    path = path.rstrip("/") if is_folder else path
    folder = path if is_folder else os.path.dirname(path)
    config = bert_configs.read_config(folder, path)
    safetensors_file = safetensors_files.find_file(path, folder)
    if safetensors_file is not None:
        tensors, aliases = safetensors_files.read(safetensors_file)
        replacements = bert_names.HUGGING_FACE
    else:
        tensors, replacements = _read_checkpoint(path)
        aliases = {}
        if config.sizes["hidden_act"] == "exact_gelu":
            # Google's "gelu" is the tanh form.
            config.sizes["hidden_act"] = "gelu"
    naming = _Naming(tensors, aliases, replacements, config, path)
    weights = naming.weights
    if safetensors_file is not None:
        for name in weights:
            if name.endswith(".kernel"):
                weights[name] = weights[name].T
    first = config.first_position
    if bert_names.POSITIONS in weights:
        # In RoBERTa's table, the first position follows that of padding.
        weights[bert_names.POSITIONS] = weights[bert_names.POSITIONS][first:]
    _check(weights, config, path)
    return Bert(
        path=path,
        architecture=config.architecture,
        sizes=config.sizes,
        layer_norm_epsilon=config.layer_norm_epsilon,
        weights=weights,
        names=naming.names,
        left_out=naming.left_out,
        vocab_file=bert_vocabularies.find_file(folder),
    )


def _read_checkpoint(path):
    """Reads a TensorFlow checkpoint; returns tensors and naming patterns."""
    checkpoint = files.open_checkpoint(path, advice="")
    tensors = {
        name: checkpoint.read(name)
        for name in checkpoint.shapes
        if name != files.OBJECT_GRAPH
    }
    if files.OBJECT_GRAPH in checkpoint.shapes:
        return tensors, bert_names.MODEL_GARDEN
    return tensors, bert_names.ORIGINAL


class _Naming:
    """Maps the tensors of a file to their common names; see `Bert`."""

    def __init__(self, tensors, aliases, replacements, config, path):
        self.weights: dict[str, np.ndarray] = {}
        self.names: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self._path = path
        self._layers = config.sizes["num_hidden_layers"]
        self._is_strict = replacements is bert_names.HUGGING_FACE
        self._check_adapters(tensors)
        dotted = replacements is not bert_names.MODEL_GARDEN
        try:
            prefix = dotted and bert_names.outer_prefix(
                x.replace("/", ".") for x in (*tensors, *aliases)
            )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        wanted = {
            *bert_names.expected_names(self._layers),
            *bert_names.head_names(),
            bert_names.DECODER_KERNEL,
            bert_names.DECODER_BIAS,
        }
        # Aliases come last, so a tensor stored under a name takes precedence.
        for name in (*tensors, *aliases):
            short = name[len(prefix) :] if prefix else name
            common = bert_names.common_name(short, replacements)
            stored = aliases.get(name, name)
            if common in wanted and common not in self.weights:
                self.weights[common] = self._as_float(stored, tensors[stored])
                self.names[common] = stored
            elif name in tensors:
                self.left_out[name] = self._why_left_out(short, common)
        self._resolve_ties(config.is_tied)
        # A tensor that is used under an alias is not left out.
        for name in self.names.values():
            self.left_out.pop(name, None)

    def _check_adapters(self, tensors):
        """Raises a ValueError for weights of LoRA and other adapters."""
        found = [x for x in tensors if re.search(_ADAPTER, x)]
        if found:
            raise ValueError(
                f"{self._path} has adapter weights, such as {found[0]}. "
                f"{bert_configs.MERGE_ADAPTER}"
            )

    def _as_float(self, name, tensor):
        """Returns a tensor as `<float32>`; rejects quantized tensors."""
        if not np.issubdtype(tensor.dtype, np.floating) and (
            tensor.dtype.name != "bfloat16"
        ):
            raise ValueError(
                f"{self._path}: {name} is {tensor.dtype.name}, expected "
                "float32, float16 or bfloat16. Save the weights without "
                "quantization."
            )
        return np.asarray(tensor, np.float32)

    def _why_left_out(self, short, common):
        """Returns why a tensor is unused; raises if BERT has no such weight."""
        layer = re.match(r"encoder\.layer\.(\d+)\.", common)
        if layer and int(layer[1]) >= self._layers:
            raise ValueError(
                f"{self._path} has a weight {short}, expected no more than "
                f"the {self._layers} layers of the configuration."
            )
        why = bert_names.why_left_out(short)
        is_inside = common.startswith(("encoder.", "embeddings."))
        if is_inside and self._is_strict and why == bert_names.UNKNOWN:
            raise ValueError(
                f"{self._path} has a weight {short} in the encoder, which BERT "
                "does not have. Use another model."
            )
        return why

    def _resolve_ties(self, is_tied):
        """Drops the head's output layer, which usually repeats other weights.

        If its weights differ from the token table and the output bias, drops
        the whole head. If the file stores shared weights only under the output
        layer's names, takes them from there.
        """
        names = bert_names
        for own, tied, what in (
            (names.DECODER_KERNEL, names.TOKENS, "the token table"),
            (names.DECODER_BIAS, names.HEAD_BIAS, "the output bias"),
        ):
            if own not in self.weights:
                continue
            value, name = self.weights.pop(own), self.names.pop(own)
            if is_tied and tied not in self.weights:
                self.weights[tied], self.names[tied] = value, name
            elif name in self.names.values():
                continue
            elif is_tied or np.array_equal(value, self.weights.get(tied)):
                self.left_out[name] = f"{what} again"
            else:
                self._leave_out_head(name)

    def _leave_out_head(self, name):
        """Drops a head whose output layer shares no weights."""
        why = "head with its own output layer instead of the token table"
        self.left_out[name] = why
        for part in bert_names.head_names():
            if self.weights.pop(part, None) is not None:
                self.left_out[self.names.pop(part)] = why


def _check(weights, config, path) -> None:
    """Checks that all weights exist, and merges the axes of attention heads."""
    sizes = config.sizes
    layers = sizes["num_hidden_layers"]
    names = bert_names.expected_names(layers)
    if not config.has_types:
        names.remove(bert_names.TYPES)
    missing = [name for name in names if name not in weights]
    if missing:
        raise ValueError(
            f"{path}: expected all weights of {layers} layers. Missing:"
            f"{files.listed(missing)}"
        )
    wrong = []
    for name, x in weights.items():
        expected = bert_names.expected_shape(name, sizes)
        heads = sizes["num_attention_heads"]
        if x.ndim > len(expected) and heads in x.shape:
            x = weights[name] = x.reshape([n or -1 for n in expected])
        if x.ndim != len(expected) or any(
            n not in (None, m) for n, m in zip(expected, x.shape, strict=True)
        ):
            wrong.append(
                f"{name} {list(x.shape)}, expected "
                f"{['any' if n is None else n for n in expected]}"
            )
    if wrong:
        raise ValueError(
            f"{path}: shapes of weights differ from the configuration:"
            f"{files.listed(wrong)}"
        )
