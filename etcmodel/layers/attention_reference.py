"""Plain NumPy forms of the paper's attention: what the tests compare with.

Written from section 3.2 of the paper in float64, one query at a time, for
clarity alone.
"""

import numpy as np


def reference_attention(
    queries,
    keys,
    values,
    att_mask=None,
    relative_att_ids=None,
    emb_table=None,
    bias_table=None,
):
    """One softmax over all keys for each query of each head.

    Args:
        queries: `<float>[batch, from, heads, size]`.
        keys: `<float>[batch, to, heads, size]`.
        values: `<float>[batch, to, heads, value_size]`.
        att_mask: `<int>[batch, from, to]` or None.
        relative_att_ids: `<int>[batch, from, to]` or None.
        emb_table: `<float>[relative_vocab_size, heads, size]`.
        bias_table: `<float>[relative_vocab_size, heads]`.

    Returns:
        `<float64>[batch, from, heads, value_size]`; zeros for a query that may
        attend to nothing.
    """
    queries, keys, values = (
        np.asarray(x, np.float64) for x in (queries, keys, values)
    )
    batch_size, from_len, num_heads, size = queries.shape
    output = np.zeros((batch_size, from_len, num_heads, values.shape[-1]))
    for b, i, h in np.ndindex(batch_size, from_len, num_heads):
        allowed = np.arange(keys.shape[1])
        if att_mask is not None:
            allowed = np.flatnonzero(np.asarray(att_mask)[b, i])
        if not len(allowed):
            continue
        # a_ij of the paper, added to each key.
        labelled_keys = keys[b, allowed, h]
        bias = 0.0
        if relative_att_ids is not None:
            ids = np.asarray(relative_att_ids)[b, i, allowed]
            labelled_keys = labelled_keys + np.asarray(emb_table)[ids, h]
            bias = np.asarray(bias_table)[ids, h]
        scores = (labelled_keys @ queries[b, i, h] + bias) / np.sqrt(size)
        weights = np.exp(scores - scores.max())
        output[b, i, h] = weights @ values[b, allowed, h] / weights.sum()
    return output


def square_of_band(band, fill=0):
    """`<any>[batch, length, 2r + 1]` as `[batch, length, length]`.

    Args:
        band: column `k` of row `i` belongs to position `i + k - r`.
        fill: the value outside the band.

    Returns:
        The square; with `r = 1`, `[[a, b, c], [d, e, f]]` gives
        `[[b, c], [d, e]]`.
    """
    band = np.asarray(band)
    batch_size, length, width = band.shape
    radius = width // 2
    square = np.full((batch_size, length, length), fill, band.dtype)
    for i in range(length):
        for k in range(width):
            j = i + k - radius
            if 0 <= j < length:
                square[:, i, j] = band[:, i, k]
    return square
