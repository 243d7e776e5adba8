"""A small layout of one's own with its encoder, and its attention in NumPy."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import layout
from etcmodel.inspection.attention_map import AttentionMap
from etcmodel.inspection.attention_map import Block
from etcmodel.inspection.attention_map import GlobalToken
from etcmodel.inspection.attention_map import Link
from etcmodel.inspection.attention_map import Mark
from etcmodel.inspection.attention_map import Memory
from etcmodel.inspection.attention_scores import LayerScores
from etcmodel.inspection.attention_scores import SparseRows
from etcmodel.inspection.surface_text import Cut
from etcmodel.inspection.surface_text import Token
from etcmodel.models import EtcConfig
from etcmodel.models import StructuredEtcModel
from etcmodel.models.etc.side_inputs import SideInputs
from testing import attention_cases
from testing import references

WORDS = "jan lives in brno it is a city <b>"
# The second sentence is truncated.
TEXTS = [["Jan lives in <b>Brno</b>."], ["It is", "a city city city"]]
LINK = "topic"
SPEC = layout.LayoutSpec(
    sections=[
        layout.Section(
            "topics",
            2,
            unit_global=layout.GlobalToken("question", 2),
            cut="keep",
        ),
        layout.Section(
            "story",
            1,
            group_global=layout.GlobalToken("paragraph", 3),
            unit_global=layout.GlobalToken("sentence", 1),
            cut="keep",
        ),
    ],
    links=[layout.Link("topics", "story", "topics", label=LINK)],
)
RADIUS, MAX_DISTANCE, HEADS = 3, 2, 2


class Example(NamedTuple):
    """A record in the layout.

    Attributes:
        encoder: a `StructuredEtcModel` with random weights.
        tokenizer: the tokenizer of the texts.
        features: the encoder's inputs, `[1, length]`, padded.
        long_sources: see `Layout`, `[long, 4]`.
        global_sources: see `Layout`, `[global, 4]`.
        texts: name -> the texts.
    """

    encoder: StructuredEtcModel
    tokenizer: object
    features: dict[str, np.ndarray]
    long_sources: np.ndarray
    global_sources: np.ndarray
    texts: dict[str, object]


def make_example(tokenizer, num_layers: int = 2) -> Example:
    """Lays out `TEXTS` and a topic; every "Brno" is linked to the topic."""
    engine = layout.LayoutEngine(SPEC, 17, 8, tokenizer.special_ids)
    texts = {"topics": ["a city"], "story": TEXTS}
    content = {
        "topics": tokenizer.tokenize(
            tf.ragged.constant([[["a city"]]], ragged_rank=2)
        ),
        "story": tokenizer.tokenize(tf.ragged.constant([TEXTS])),
    }
    pieces = tokenizer.id_to_token(content["story"].flat_values)
    links = content["story"].with_flat_values(tf.where(pieces == "brno", 0, -1))
    made = engine(content, {"topics": links})
    made = tf.nest.map_structure(lambda x: x.numpy(), made)
    config = EtcConfig.from_preset(
        "tiny",
        vocab_size=tokenizer.vocab_size,
        num_hidden_layers=num_layers,
        num_attention_heads=HEADS,
        hidden_size=8,
        intermediate_size=8,
        local_radius=RADIUS,
        relative_pos_max_distance=MAX_DISTANCE,
        relative_vocab_size=16,
    )
    encoder = StructuredEtcModel(config, structure=SPEC)
    encoder.build(None)
    rng = np.random.default_rng(0)
    encoder.set_weights(
        [x + 0.5 * rng.normal(size=x.shape) for x in encoder.get_weights()]
    )
    return Example(
        encoder,
        tokenizer,
        made.features,
        made.long_sources[0],
        made.global_sources[0],
        texts,
    )


def attention_of_first_layer(example: Example) -> np.ndarray:
    """Computes the first layer's attention probabilities in NumPy.

    Returns `<float>[heads, tokens, tokens]` with the global tokens first, and
    with padding: softmax of `(q.k + q.E[label] + b[label]) / sqrt(size)` over
    the keys that the masks allow.
    """
    encoder, features = example.encoder, example.features
    streams = {
        name[0]: _embed(encoder, features, name) for name in ("global", "long")
    }
    pairs = SideInputs(
        local_radius=RADIUS,
        relative_pos_max_distance=MAX_DISTANCE,
        structure=encoder.side_inputs.structure,
    )({name: tf.constant(x) for name, x in features.items()})
    block = encoder.global_local_transformer_layers.fused_att_layers[0]
    layer, found = block.inner_layer, []
    for stream, kinds, tables in (
        ("global", ("g2g", "g2l"), layer.global_qkv_attention),
        (
            "long",
            ("l2g", "l2l"),
            layer.long_qkv_attention.qkv_relative_attention,
        ),
    ):
        projection = getattr(layer, f"{stream}_query_projection")
        queries = references.project(projection, streams[stream[0]])[0]
        keys = np.concatenate(
            [
                references.project(
                    getattr(layer, f"{kind}_key_projection"), streams[kind[-1]]
                )[0]
                for kind in kinds
            ]
        )
        mask, labels = (
            np.concatenate([_square(pairs, kind, part) for kind in kinds], 1)
            for part in ("att_mask", "relative_att_ids")
        )
        embedded = np.asarray(tables.relative_emb_table)[labels]
        biases = np.asarray(tables.relative_bias_table)[labels]
        scores = np.einsum("ihs,jhs->hij", queries, keys)
        scores += np.einsum("ihs,ijhs->hij", queries, embedded)
        scores += np.transpose(biases, [2, 0, 1])
        scores /= np.sqrt(queries.shape[-1])
        weights = np.where(mask, np.exp(scores), 0.0)
        found.append(weights / weights.sum(-1, keepdims=True))
    return np.concatenate(found, axis=1)


def _embed(encoder, features, stream):
    """Sums the embeddings of tokens and their types, and normalizes them."""
    ids, types = (
        features[f"{stream}_{name}"] for name in ("token_ids", "token_type_ids")
    )
    tokens, segments = (
        np.asarray(x.embedding_table, np.float64)
        for x in (encoder.token_emb_lookup, encoder.segment_emb_lookup)
    )
    norm = getattr(encoder, f"{stream}_emb_layer_norm")
    return references.normalize(norm, tokens[ids] + segments[types])


def _square(pairs, kind, part):
    """Returns a mask or labels for all pairs, `[queries, keys]`."""
    found = pairs.get(f"{kind}_{part}")
    if found is None:
        # Global tokens see all.
        shapes = {"g": pairs["l2g_relative_att_ids"].shape[2]}
        shapes["l"] = pairs["l2g_relative_att_ids"].shape[1]
        return np.ones([shapes[kind[0]], shapes[kind[-1]]], int)
    found = np.asarray(found)
    if kind == "l2l":
        found = attention_cases.square_of_band(found)
    return found[0]


def sparse(*rows: Mapping[int, float]) -> SparseRows:
    """Makes rows of key -> probability; the rest is what is missing to 1."""
    keys = np.full([len(rows), 3], -1, np.int32)
    values = np.zeros([len(rows), 3], np.float32)
    for i, row in enumerate(rows):
        keys[i, : len(row)] = [*row]
        values[i, : len(row)] = [*row.values()]
    return SparseRows(keys, values, 1 - values.sum(axis=1))


def make_map(rows: Sequence[int] | None = None, **changed) -> AttentionMap:
    """Makes a map of a global token and two tokens, "<b>" and "jan".

    `rows` are the numbers of the tokens that have scores; None for all.
    """
    heads = {
        "average": [{0: 0.5, 1: 0.25}, {0: 0.5, 2: 0.25}, {1: 1.0}],
        "1": [{0: 1.0}, {0: 0.25, 2: 0.25}, {1: 1.0}],
        "2": [{1: 0.5}, {0: 0.75, 2: 0.25}, {1: 1.0}],
    }
    mean = [{0: 0.25}, {2: 0.5}, {1: 0.5, 0: 0.0625}]
    chosen = range(3) if rows is None else rows
    layers = [
        LayerScores(
            "All layers", {"average": sparse(*(mean[i] for i in chosen))}
        ),
        LayerScores(
            "Layer 1",
            {
                name: sparse(*(found[i] for i in chosen))
                for name, found in heads.items()
            },
        ),
    ]
    values = {
        "title": "toy: <i>1</i>",
        "summary": [("record", "1")],
        "answers": [("Predicted answer", "jan"), ("Gold answer", "</script>")],
        "global_tokens": [GlobalToken("query 0", "question")],
        "tokens": [Token("<b>", "[UNK]", ""), Token("jan", "jan", " ")],
        "blocks": [Block(0, 2, [0], "words")],
        "links": [Link(2, 0, "topic")],
        "cuts": [Cut("text", "and more", 2)],
        "segments": (),
        "memories": (),
        "layers": layers,
        "rows": rows,
        "marks": [Mark(1, 2, "predicted")],
        **changed,
    }
    return AttentionMap(**values)


def make_segments_map() -> AttentionMap:
    """Makes a map of two segments of one token, with a memory of each."""
    rows = [
        {0: 0.75, 4: 0.25},
        {1: 0.5, 5: 0.5},
        {4: 0.25, 5: 0.0625},
        {5: 0.5},
    ]
    return make_map(
        global_tokens=(),
        blocks=[
            Block(0, 1, heading="Segment 1", segment=0),
            Block(1, 2, heading="Segment 2", segment=1),
        ],
        links=(),
        marks=(),
        segments=["Segment 1", "Segment 2"],
        memories=[Memory("Jan", 0), Memory("Brno", 1)],
        layers=[
            LayerScores("First read", {"average": sparse({0: 1.0}, {1: 1.0})}),
            LayerScores("Second read", {"average": sparse(*rows)}),
        ],
    )
