"""References for outputs of heads, losses and models, in float64 NumPy."""

import numpy as np

from testing import references


def contrastive_loss(kernel, predictions, encodings, weights):
    """Computes each item's `BatchContrastiveLoss` and correctness."""
    kernel, predictions, encodings = (
        np.asarray(x, np.float64) for x in (kernel, predictions, encodings)
    )
    real = [j for j in range(len(weights)) if weights[j]]
    losses, right = [], []
    for i in range(len(weights)):
        scores = {j: predictions[i] @ kernel @ encodings[j] for j in real}
        if not weights[i]:
            losses.append(0.0)
            right.append(0.0)
            continue
        total = np.log(sum(np.exp(x) for x in scores.values()))
        losses.append(total - scores[i])
        right.append(float(max(scores, key=scores.get) == i))
    return losses, right


_ACTIVATIONS = {
    None: lambda x: x,
    "gelu": references.gelu,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}


def language_model_head(head, hidden_states, table):
    x = references.dense(head.dense, hidden_states)
    x = _ACTIVATIONS[head.hidden_act](x)
    x = references.normalize(head.layer_norm, x, head.layer_norm_epsilon)
    return x @ table.T + np.array(head.output_bias, np.float64)


def coreference_loss(
    layer,
    states,
    ids,
    all_states,
    all_ids,
    labels_mask=None,
    labels_weight=None,
):
    """Computes the `BatchCoreferenceResolutionLoss` of each item."""
    states = np.asarray(states, np.float64)
    if layer.apply_linear_layer:
        states = states @ np.array(layer.linear.kernel, np.float64)
    bias = np.array(layer.batch_coref_loss_bias, np.float64)[0]
    ignored = (layer.padding_id, layer.unknown_id)
    result = []
    for i, item_id in enumerate(ids):
        total = weights = 0.0
        for j, other_id in enumerate(all_ids):
            if item_id in ignored or other_id in ignored or j == i:
                continue
            is_same = item_id == other_id
            if labels_mask is not None:
                is_same = is_same and labels_mask[i, j]
            weight = 1.0 if labels_weight is None else labels_weight[i, j]
            score = states[i] @ np.asarray(all_states[j], np.float64) + bias
            # -log(sigmoid(score)) or -log(1 - sigmoid(score))
            total += weight * np.log1p(np.exp(-score if is_same else score))
            weights += weight
        result.append(total / (weights + 1e-5))
    return np.array(result)


def _processed_memories(model, memory, labels, document, position, mode):
    """Applies `summary_postprocessing_type` to memories."""
    kind = model.config.summary_postprocessing_type
    extraction = model.summary_extraction
    if kind == "linear":
        return np.tanh(references.dense(extraction.cls_pool, memory))
    if kind == "none":
        return memory
    lookup = extraction.block_position_emb_lookup
    memory = references.normalize(
        extraction.summary_emb_layer_norm,
        memory + np.array(lookup.embedding_table)[position],
    )
    if kind == "pos":
        return memory
    sees = (document[:, None] == document) & (document != 0) & (labels != 0)
    if mode == "block":
        sees &= position[:, None] == position
    return references.side_transformer(
        extraction.transformer_with_side_inputs,
        memory[None],
        [None],
        sees[None],
    )[0]


def read_twice(model, batch, mode="doc"):
    """Computes the output of a `ReadTwiceModel`."""
    batch = {name: np.array(x) for name, x in batch.items()}
    config, ids = model.config, batch["token_ids"]
    length = ids.shape[1]
    x = np.array(model.token_emb_lookup.embedding_table, np.float64)[ids]
    x = x + np.array(model.position_emb_lookup_long.embedding_table)[:length]
    embedded = references.normalize(model.emb_layer_norm, x)
    mask = np.repeat((ids != 0)[:, None], length, axis=1)
    first = references.side_transformer(
        model.transformer_with_side_inputs, embedded, [None], mask
    )
    # The memories, and the tokens that attend to them.
    tokens = np.ones_like(ids, bool)
    if config.summary_mode == "cls":
        memory = first[:, 0]
        labels, per_segment = batch["block_ids"], 1
        owners = np.arange(length) == 0
        owners = np.repeat(owners[None], len(ids), axis=0)
    else:
        spans = np.stack(
            [batch[f"annotation_{x}"] for x in ("begins", "ends", "labels")],
            axis=-1,
        )
        if config.summary_mode == "text_block":
            every = config.text_block_extract_every_x
            blocks = [
                (begin, min(begin + every, length) - 1)
                for begin in range(0, length, every)
            ]
            spans = np.array(
                [[(b, e, row[b] and row[e]) for b, e in blocks] for row in ids]
            )
            spans[..., 2] = spans[..., 2] > 0
        labels, per_segment = spans[..., 2].reshape(-1), spans.shape[1]
        memory, owners = [], np.zeros_like(ids, bool)
        for i, j in np.ndindex(spans.shape[:2]):
            begin, end, label = spans[i, j]
            memory.append(np.concatenate(first[i][[begin, end]]))
            if label:
                owners[i, begin : end + 1] = True
        if config.summary_mode == "text_block":
            owners = np.repeat([np.arange(length) % every == 0], len(ids), 0)
        memory = references.dense(
            model.summary_extraction.entity_pool_linear, np.stack(memory)
        )
        memory[labels == 0] = 0
    if config.use_sparse_memory_attention:
        tokens = owners
    document = np.repeat(batch["block_ids"], per_segment)
    position = np.repeat(batch["block_pos"], per_segment)
    sees = (batch["block_ids"][:, None] == document) & (labels != 0)
    if mode == "block":
        sees &= batch["block_pos"][:, None] == position
    memory = _processed_memories(
        model, memory, labels, document, position, mode
    )
    # [batch, length, memories]
    side_mask = tokens[:, :, None] & sees[:, None]
    if model.cross_attention_layer is None:
        transformer, main = model.second_transformer, first
        if transformer is None:
            transformer, main = model.transformer_with_side_inputs, embedded
        both = np.concatenate([mask, side_mask], axis=2)
        return references.side_transformer(transformer, main, [memory], both)
    block = model.cross_attention_layer
    attended = references.side_attention(
        block.inner_layer,
        first,
        memory,
        side_mask,
        batch["block_pos"],
        position,
        side_mask.any(-1),
    )
    return references.side_transformer(
        model.second_transformer,
        references.residual_block(block, first, attended),
        [None],
        mask,
    )
