"""Computes attention for one chunk of the long sequence at a time.

Scores exist for one chunk only: the forward pass keeps the output and each
query's maximum and denominator of the softmax, and the backward pass recomputes
the probabilities from them. Memory therefore does not grow with heads x
length x window. The softmax of global queries, over the keys of all chunks, is
computed in one pass (see `softmax.merge`).
"""

import copy

import tensorflow as tf

from etcmodel.ops import custom_gradients
from etcmodel.ops import shapes
from etcmodel.ops.attention import blocks
from etcmodel.ops.attention import softmax

# Maximum number of scores at a time: 12 MB in float32, which fit into a CPU's
# cache.
CHUNK_ELEMENTS = 3 * 2**20


def attend(run: blocks.LongQueries | blocks.GlobalQueries) -> tf.Tensor:
    """Attends to all keys without keeping scores."""

    def over_chunks(*tensors, captured):
        stream = _Stream(captured)
        names = stream.differentiable()
        rows, whole = stream.split(tensors)
        output, softmax_stats = stream.forward(rows, whole)

        def grad(d_output):
            gradients = stream.backward(
                rows, whole, output, softmax_stats, d_output
            )
            return [gradients[name] for name in names]

        return output, grad

    def at_once(*tensors, captured):
        stream = _Stream(captured)
        rows, whole = stream.split(tensors)
        if captured.dropout is not None:
            return stream.unrolled(rows, whole)
        whole_run = copy.copy(captured)
        whole_run.rows, whole_run.whole = rows, whole
        return blocks.attend(whole_run)

    attend_to_all = custom_gradients.custom_gradient(over_chunks, at_once)
    tensors = _Stream(run).join(run.rows, run.whole)
    return attend_to_all(*tensors, captured=run)


class _Stream:
    def __init__(self, run):
        self.run = run
        self.units, self.num_chunks = plan_chunks(
            blocks.ceil_div(run.length, run.unit), run.unit_elements
        )
        self.chunk_len = self.units * run.unit
        self.row_names = [
            name for name, x in run.rows.items() if x.dtype.is_floating
        ]

    def differentiable(self):
        """Names the tensors with gradients; `(x, "row")` names `rows[x]`."""
        return [*((name, "row") for name in self.row_names), *self.run.whole]

    def join(self, rows, whole):
        """Lists the tensors in the order of `differentiable`."""
        return [*(rows[name] for name in self.row_names), *whole.values()]

    def split(self, tensors):
        """Undoes `join`: returns all rows, and the whole tensors."""
        number = len(self.row_names)
        rows = dict(zip(self.row_names, tensors[:number], strict=True))
        whole = dict(zip(self.run.whole, tensors[number:], strict=True))
        rows = {
            name: blocks.never_empty(x, self.run.length)
            for name, x in {**self.run.rows, **rows}.items()
        }
        return rows, whole

    def _chunk(self, index):
        return blocks.Chunk(index * self.chunk_len, self.chunk_len, index)

    def _cut(self, rows, chunk):
        return {
            name: blocks.cut(
                x, chunk, self.run.margins.get(name, 0), self.run.length
            )
            for name, x in rows.items()
        }

    def forward(self, rows, whole):
        """Computes output and softmax statistics (by chunk if `are_rows`)."""
        run = self.run
        if not run.are_rows:
            attended = loop(
                self.num_chunks,
                lambda index, *state: softmax.merge(
                    [
                        softmax.Attended(*state),
                        self._attend_chunk(rows, whole, index),
                    ]
                ),
                softmax.forward(run.fixed_key_blocks(whole)),
            )
            output, softmax_stats = attended
            output = softmax.heads_outer(tf.cast(output, run.dtype))
            return output, softmax_stats

        def body(index, outputs, all_stats):
            output, softmax_stats = self._attend_chunk(rows, whole, index)
            return [
                outputs.write(
                    index, tf.cast(softmax.heads_outer(output), run.dtype)
                ),
                all_stats.write(index, softmax_stats),
            ]

        outputs, all_stats = loop(
            self.num_chunks,
            body,
            [
                tf.TensorArray(dtype, self.num_chunks)
                for dtype in (run.dtype, softmax.score_dtype(run.dtype))
            ],
        )
        output = concat_chunks(outputs)[:, : run.length]
        # [chunks, batch, heads, queries, 2]
        return output, all_stats.stack()

    def _attend_chunk(self, rows, whole, index, attend=softmax.forward):
        chunk = self._chunk(index)
        cut = self._cut(rows, chunk)
        return attend(self.run.key_blocks(cut, whole, chunk))

    def unrolled(self, rows, whole):
        """Computes the output of `forward` without a loop in the graph."""
        if not isinstance(self.num_chunks, int):
            raise NotImplementedError(
                "Streaming attention with dropout and unknown sizes has no "
                "second derivatives and no forward mode. Use "
                "att_implementation='sparse', or inputs of known shapes."
            )
        parts = [
            self._attend_chunk(rows, whole, index, softmax.attend)
            for index in range(self.num_chunks)
        ]
        if not self.run.are_rows:
            parts = [softmax.attend(self.run.fixed_key_blocks(whole)), *parts]
            output = softmax.heads_outer(softmax.merge(parts).output)
            return tf.cast(output, self.run.dtype)
        outputs = [softmax.heads_outer(part.output) for part in parts]
        # [batch, length, heads, value_size]
        output = tf.concat(outputs, axis=1)[:, : self.run.length]
        return tf.cast(output, self.run.dtype)

    def backward(self, rows, whole, output, softmax_stats, d_output):
        """Computes gradients, keyed by the names in `differentiable`."""
        run = self.run
        fixed = None
        if not run.are_rows:
            fixed = self._known(output, softmax_stats, d_output)

        def known(index, chunk):
            """Returns a chunk's outputs, statistics and output gradient."""
            if fixed is not None:
                return fixed
            rows = {
                name: blocks.never_empty(x, run.length)
                for name, x in (("output", output), ("gradient", d_output))
            }
            rows = self._cut(rows, chunk)
            exists = chunk.positions() < run.length
            rows["gradient"] *= tf.cast(
                exists[:, tf.newaxis, tf.newaxis], run.dtype
            )
            return self._known(
                rows["output"], softmax_stats[index], rows["gradient"]
            )

        def body(index, *state):
            arrays, margins, sums = self._unpack(state)
            chunk = self._chunk(index)
            cut = self._cut(rows, chunk)
            found = _gradients(
                lambda: run.key_blocks(cut, whole, chunk),
                self.join(cut, whole),
                *known(index, chunk),
            )
            number = len(self.row_names)
            for i, rows_gradient in enumerate(found[:number]):
                finished, margins[i] = self._carry(rows_gradient, margins[i])
                arrays[i] = arrays[i].write(index, finished)
            sums = [
                total + softmax.to_score_dtype(x)
                for total, x in zip(sums, found[number:], strict=True)
            ]
            return [*arrays, *margins, *sums]

        sums = [
            tf.zeros_like(x, softmax.score_dtype(x.dtype))
            for x in whole.values()
        ]
        if not run.are_rows:
            found = _gradients(
                lambda: run.fixed_key_blocks(whole),
                list(whole.values()),
                *fixed,
            )
            sums = [softmax.to_score_dtype(x) for x in found]
        state = loop(
            self.num_chunks,
            body,
            [
                *[
                    tf.TensorArray(run.dtype, self.num_chunks)
                    for _ in self.row_names
                ],
                *[self._first_margin(name) for name in self.row_names],
                *sums,
            ],
        )
        return self._joined(whole, *self._unpack(state))

    def _known(self, output, softmax_stats, d_output):
        """Converts arguments to the form and dtype of `softmax.gradients`."""
        # [batch, heads, queries, value_size] each
        output, d_output = (
            softmax.to_score_dtype(softmax.heads_outer(x))
            for x in (output, d_output)
        )
        return softmax.Attended(output, softmax_stats), d_output

    def _joined(self, whole, arrays, margins, sums):
        """Joins the gradients of all chunks, by name."""
        run = self.run
        result = {
            name: tf.cast(total, whole[name].dtype)
            for name, total in zip(whole, sums, strict=True)
        }
        for name, array, last in zip(
            self.row_names, arrays, margins, strict=True
        ):
            # [batch, padded length + 2 * margin, heads, x], which starts
            # `margin` positions before the sequence
            found = tf.concat(
                [concat_chunks(array), tf.cast(last, run.dtype)], axis=1
            )
            first = run.margins.get(name, 0)
            result[name, "row"] = found[:, first : first + run.length]
        return result

    def _unpack(self, state):
        number = len(self.row_names)
        return (
            list(state[:number]),
            list(state[number : 2 * number]),
            list(state[2 * number :]),
        )

    def _first_margin(self, name):
        batch, _, *rest = shapes.get_shape_list(self.run.rows[name])
        margin = 2 * self.run.margins.get(name, 0)
        return tf.zeros(
            [batch, margin, *rest], softmax.score_dtype(self.run.dtype)
        )

    def _carry(self, rows, margin):
        """Adds gradients where two chunks overlap; returns the next margin."""
        size = margin.shape[1]
        if not size:
            return rows, margin
        first = softmax.to_score_dtype(rows[:, :size]) + margin
        rows = tf.concat([tf.cast(first, rows.dtype), rows[:, size:]], axis=1)
        return (
            rows[:, : self.chunk_len],
            softmax.to_score_dtype(rows[:, self.chunk_len :]),
        )


def _gradients(make_key_blocks, inputs, attended, d_output):
    """Computes gradients of the inputs from which key blocks are made."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        key_blocks = make_key_blocks()
    found = softmax.gradients(key_blocks, attended, d_output)
    return tape.gradient(
        [getattr(key_blocks[i], name) for i, name in found],
        inputs,
        list(found.values()),
        tf.UnconnectedGradients.ZERO,
    )


def plan_chunks(num_units, elements_per_unit):
    """Cuts units into chunks of about equal size.

    7 units with at most 3 per chunk make 3 chunks of 3. Two chunks are merged
    into one, which needs no loop: this is faster, but takes more memory. Zero
    units count as one unit.

    Returns:
        `(units of a chunk, number of chunks)`, ints if both arguments are.
    """
    if isinstance(num_units, int) and isinstance(elements_per_unit, int):
        at_least, is_two = max, int
    else:
        at_least = tf.maximum

        def is_two(x):
            return tf.cast(x, tf.int32)

    num_units = at_least(num_units, 1)
    max_units = at_least(CHUNK_ELEMENTS // at_least(elements_per_unit, 1), 1)
    num_chunks = blocks.ceil_div(num_units, max_units)
    num_chunks -= is_two(num_chunks == 2)
    return blocks.ceil_div(num_units, num_chunks), num_chunks


def concat_chunks(array: tf.TensorArray) -> tf.Tensor:
    """Joins `<any>[batch, chunk, ...]` of all chunks along axis 1."""
    # [chunks, batch, chunk, ...]
    stacked = array.stack()
    chunks, batch, length, *rest = shapes.get_shape_list(stacked)
    if not (isinstance(batch, int) and batch == 1):
        stacked = tf.transpose(stacked, [1, 0, *range(2, stacked.shape.rank)])
    return tf.reshape(stacked, [batch, chunks * length, *rest])


def loop(num_chunks, body, state) -> list:
    """Runs `body(index, *state)` for each chunk; returns the last state."""
    if isinstance(num_chunks, int) and num_chunks < 2:
        return list(body(0, *state)) if num_chunks else list(state)

    def step(index, *state):
        new_state = body(index, *state)
        for new, old in zip(new_state, state, strict=True):
            if tf.is_tensor(new):
                new.set_shape(old.shape)
        return [index + 1, *new_state]

    _, *state = tf.while_loop(
        lambda index, *_: index < num_chunks,
        step,
        [tf.constant(0), *state],
        parallel_iterations=1,
        maximum_iterations=num_chunks,
    )
    return state
