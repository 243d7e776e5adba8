"""Loads encoders and heads from object-based checkpoints."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from etcmodel.checkpoints import files
from etcmodel.checkpoints import lora_factors
from etcmodel.checkpoints import original
from etcmodel.layers import keras_compat
from etcmodel.models import LanguageModelHead
from etcmodel.weight_paths import get_weight_paths

# Path of attributes that identifies an encoder.
_TOKEN_TABLE = ["token_emb_lookup", "embedding_table"]
# Attributes that Keras adds when a model is trained.
_OF_TRAINING = ("optimizer", "_optimizer", "_loss_tracker", "_metrics")
_VALUE = "VARIABLE_VALUE"


class _Saved(NamedTuple):
    node: int
    key: str


def load_checkpoint(
    model: tf.keras.Model, path: str | os.PathLike, prefix: str | None = None
) -> None:
    """Loads the weights of a TensorFlow checkpoint into an encoder.

    The checkpoint may come from the `train` command, from a
    `tf.train.Checkpoint` of any model that contains the encoder (in Keras 2 or
    3), from the original code, or from the `lift` command (see `load_etc`).
    Heads and optimizers are not loaded. If any variable is missing, nothing is
    loaded. Layers that embed values (see `StructuredEtcModel`) are an
    exception: if the checkpoint lacks such a layer, the layer keeps its
    weights, and a warning is logged. If the checkpoint has LoRA (see
    `models.add_lora`), its products are added to the kernels; LoRA of `model`
    starts anew.

    Args:
        model: an `EtcModel` or `ReadTwiceModel`, built or not; or a model with
            one inside, whose other weights do not change.
        path: the checkpoint, such as "runs/1/ckpt-200". For a directory, loads
            its latest checkpoint.
        prefix: path of the encoder in the checkpoint, such as "model/encoder";
            required only if the checkpoint has several encoders of the class.

    Raises:
        ValueError: the model or the checkpoint does not have exactly one
            encoder, or the names or shapes of their variables differ.
        FileNotFoundError: the checkpoint does not exist.
    """
    path = os.fspath(path)
    encoder = files.find_encoder(model)
    keras_compat.build_once(encoder, None)
    checkpoint = files.open_checkpoint(path)
    if files.OBJECT_GRAPH not in checkpoint.shapes:
        original.load_original(encoder, path)
        return
    graph = _read_graph(checkpoint)
    files.check_kind(encoder, path, [x for x, _ in _variables(graph, 0)])
    weights, restarted = lora_factors.split(get_weight_paths(encoder))
    root = _find_root(graph, [x.split("/") for x in weights], path, prefix)
    saved = {x: _resolve(graph, root, x.split("/")) for x in weights}
    factors = {
        x: [_resolve(graph, root, y.split("/")) for y in names]
        for x in weights
        if (names := lora_factors.names_of(x))
    }
    factors = {x: pair for x, pair in factors.items() if all(pair)}
    found = {name for name, node in saved.items() if node is not None}
    weights = files.without_new(encoder, weights, found)
    shapes = checkpoint.shapes
    used = {x.node for x in saved.values() if x is not None}
    used |= {x.node for pair in factors.values() for x in pair}
    files.assign(
        weights,
        {x: shapes[node.key] for x, node in saved.items() if node},
        lambda x: lora_factors.merge(
            checkpoint.read(saved[x].key),
            *[checkpoint.read(y.key) for y in factors.get(x, ())],
        ),
        [x for x, node in _variables(graph, root) if node not in used],
        f"The checkpoint {path} does not fit the model {encoder.name}",
    )
    lora_factors.restart(restarted)


def load_head(
    head: tf.keras.layers.Layer,
    path: str | os.PathLike,
    optional: Sequence[str] = (),
) -> bool:
    """Loads a head from a checkpoint; returns whether it was found.

    Searches the checkpoint, outside of encoders, for a layer whose weights have
    the same names as those of `head`. If several layers match, the shapes of
    their weights decide. Unless exactly one layer matches, returns False and
    changes nothing. In the original code's format, only a `LanguageModelHead`
    can be found (see `save_etc`).

    Args:
        head: the layer to load; it must be built.
        path: the checkpoint.
        optional: attributes of the head that the checkpoint may lack. If it
            does, they keep their weights.

    Raises:
        ValueError: the shapes of the weights differ.
        FileNotFoundError: the checkpoint does not exist.
    """
    path = os.fspath(path)
    checkpoint = files.open_checkpoint(path)
    if files.OBJECT_GRAPH not in checkpoint.shapes:
        return isinstance(
            head, LanguageModelHead
        ) and original.load_original_head(head, path)
    graph = _read_graph(checkpoint)
    weights = get_weight_paths(head)
    found = []
    for node in _outside_encoders(graph):
        saved = {x: _resolve(graph, node, x.split("/")) for x in weights}
        if all(x or y.split("/")[0] in optional for y, x in saved.items()):
            found.append({name: x.key for name, x in saved.items() if x})
    if len(found) > 1:
        shapes = {name: tuple(x.shape) for name, x in weights.items()}
        found = [
            keys
            for keys in found
            if all(
                shapes[name] == tuple(checkpoint.shapes[key])
                for name, key in keys.items()
            )
        ]
    if len(found) != 1:
        return False
    (keys,) = found
    files.assign(
        {name: weights[name] for name in keys},
        {name: checkpoint.shapes[key] for name, key in keys.items()},
        lambda x: checkpoint.read(keys[x]),
        [],
        f"{head.name} in the checkpoint {path} does not fit this model",
    )
    return True


def _read_graph(checkpoint):
    return trackable_object_graph_pb2.TrackableObjectGraph.FromString(
        checkpoint.read(files.OBJECT_GRAPH)
    )


def _find_root(graph, paths, checkpoint, prefix) -> int:
    """Finds the encoder's node: the one that matches most weight paths."""
    roots = {}
    for path, node in _walk(graph, 0):
        is_encoder = _resolve(graph, node, _TOKEN_TABLE) is not None
        if is_encoder and prefix in (None, path):
            number = sum(_resolve(graph, node, x) is not None for x in paths)
            roots[node] = (number, path)
    highest = max(roots.values(), default=(0, ""))[0]
    best = [node for node, (number, _) in roots.items() if number == highest]
    if len(best) != 1:
        names = ", ".join(repr(roots[node][1]) for node in best) or "none"
        raise ValueError(
            f"The checkpoint {checkpoint} must have one encoder"
            f"{'' if prefix is None else f' at {prefix!r}'}, but has "
            f"{len(best)} ({names}). Set `prefix` to its path."
        )
    return best[0]


def _walk(graph, root, left_out=()):
    """Yields the paths and ids of a node and all nodes below, nearest first."""
    seen, rows = {root}, [("", root)]
    for path, node in rows:
        yield path, node
        for child in graph.nodes[node].children:
            if child.node_id not in seen and child.local_name not in left_out:
                seen.add(child.node_id)
                name = child.local_name
                rows.append((f"{path}/{name}" if path else name, child.node_id))


def _outside_encoders(graph) -> list[int]:
    """Returns the ids of nodes that are in no encoder."""
    inside = set()
    nodes = [x for _, x in _walk(graph, 0, left_out=_OF_TRAINING)]
    for node in nodes:
        if _resolve(graph, node, _TOKEN_TABLE) is not None:
            inside.update(x for _, x in _walk(graph, node))
    return [x for x in nodes if x not in inside]


def _variables(graph, root):
    """Yields the path and node id of each variable below a node."""
    for path, node in _walk(graph, root, left_out=_OF_TRAINING):
        if _key(graph, node) is not None:
            yield path, node


def _resolve(graph, node, path) -> _Saved | None:
    """Returns the variable at a path of attributes, or None."""
    for name in path:
        children = {x.local_name: x.node_id for x in graph.nodes[node].children}
        # Keras 3 stores kernels in attributes such as `_kernel`.
        node = children.get(name, children.get(f"_{name}"))
        if node is None:
            return None
    key = _key(graph, node)
    return None if key is None else _Saved(node, key)


def _key(graph, node) -> str | None:
    for attribute in graph.nodes[node].attributes:
        if attribute.name == _VALUE:
            return attribute.checkpoint_key
    return None
