"""Recomputes activations in the backward pass (gradient checkpointing).

Dropout must drop the same elements when a function runs again in the backward
pass. A seed is therefore drawn once, before the first run. The
`RecomputeContext` of each run passes this seed to the dropout layers inside.
"""

import collections
import contextlib
import threading
from collections.abc import Callable

import tensorflow as tf

from etcmodel.ops import custom_gradients

_stack = threading.local()


class RecomputeContext(contextlib.AbstractContextManager):
    """State of a recomputed function, for the layers inside.

    Attributes:
        is_recomputing: whether this is the run in the backward pass.
        seed: `<int32>[]`, equal in both runs.
        children: contexts of the recomputed functions called inside this one
            so far, in order.
        call_counts: layer number -> number of seeds that it has drawn so far.
    """

    def __init__(self, is_recomputing: bool, seed: tf.Tensor):
        self.is_recomputing = is_recomputing
        self.seed = seed
        self.children = []
        self.call_counts = collections.Counter()
        self._numbers = {}

    def number_of(self, layer) -> int:
        """Returns a layer's index in the order of first calls, from 0."""
        return self._numbers.setdefault(id(layer), len(self._numbers))

    def __enter__(self):
        _contexts().append(self)
        return self

    def __exit__(self, exc_type, exc_value, traceback):
        popped = _contexts().pop()
        if popped is not self:
            raise AssertionError(
                "Recompute contexts must be left in the reverse of the order "
                "in which they were entered."
            )


def seeded(seed) -> RecomputeContext:
    """Seeds the dropout of layers that are called in the block.

    Only `RecomputingDropout` is affected. Each layer and each call drops
    different elements. `seed` is `<int32>[]`.
    """
    return RecomputeContext(False, tf.cast(seed, tf.int32))


def get_recompute_context() -> RecomputeContext | None:
    """Returns the innermost context of this thread, or None."""
    contexts = _contexts()
    return contexts[-1] if contexts else None


def recompute_grad(f: Callable, seed=None) -> Callable:
    """Wraps a function so that it keeps no activations for the backward pass.

    The backward pass runs `f` a second time instead. Dropout inside `f` must be
    `RecomputingDropout` (or `stateless_dropout` with a seed that is an
    argument): a Keras dropout would drop different elements in the second run,
    and all gradients would be wrong.

    Args:
        f: function to wrap. It takes tensors, nested structures of tensors and
            other values, and returns a float tensor or a nested structure of
            float tensors. Layers called inside must be built. Gradients flow to
            all float tensors among its arguments and to the variables that it
            uses, but not to other tensors that it captures.
        seed: `<int32>[]` seed of the dropout inside; None for a new one at each
            call. Inside another recomputed function, the default depends on
            that function's seed.
    """

    def g(*args, **kwargs):
        leaves = tf.nest.flatten((args, kwargs))
        is_float = [_is_float_tensor(leaf) for leaf in leaves]
        floats = [x for x, is_it in zip(leaves, is_float, strict=True) if is_it]
        call_seed = _make_seed(seed)
        parent = get_recompute_context()
        structures = []

        def run(floats, is_recomputing=False):
            remaining = iter(floats)
            new_leaves = [
                next(remaining) if is_float_leaf else leaf
                for leaf, is_float_leaf in zip(leaves, is_float, strict=True)
            ]
            new_args, new_kwargs = tf.nest.pack_sequence_as(
                (args, kwargs), new_leaves
            )
            run_seed = call_seed
            if is_recomputing and floats:
                run_seed += zero_that_depends_on(floats[0])
            context = RecomputeContext(is_recomputing, run_seed)
            if parent is not None and not is_recomputing:
                parent.children.append(context)
            with context:
                result = f(*new_args, **new_kwargs)
            structures.append(result)
            return tuple(tf.nest.flatten(result))

        results = _recomputed(run, floats)
        return tf.nest.pack_sequence_as(structures[0], tf.nest.flatten(results))

    return g


def _recomputed(run, floats):
    """Returns the outputs of `run`; the backward pass computes them again."""
    is_running, is_forward_mode = True, False

    def forward(*floats):
        # In eager mode, this stops tapes from recording.
        pause = (
            tf.init_scope if tf.executing_eagerly() else contextlib.nullcontext
        )
        with pause():
            results = run(floats)

        def backward(*upstream, variables=()):
            nonlocal is_forward_mode
            if is_running:
                # If forward mode watches variables, TensorFlow calls this
                # function in the forward pass.
                is_forward_mode = True
                gradients = [tf.zeros_like(x) for x in [*floats, *variables]]
            else:
                gradients = again(floats, upstream, list(variables))
            number = len(floats)
            if not variables:
                return gradients
            return gradients[:number], gradients[number:]

        return results, backward

    def again(floats, upstream, variables):
        inputs = [_after(x, upstream[0]) for x in floats]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            tape.watch(variables)
            results = run(inputs, is_recomputing=True)
        return tape.gradient(
            results,
            inputs + variables,
            list(upstream),
            tf.UnconnectedGradients.ZERO,
        )

    def plain(*floats):
        return run(floats)

    results = custom_gradients.recorded(forward, plain, floats)
    is_running = False
    return plain(*floats) if is_forward_mode else results


def _after(tensor, other):
    """Makes a tensor depend on another, so no compiler computes it earlier."""
    if tf.executing_eagerly():
        return tf.identity(tensor)
    # The maximum of no elements is -inf, so this works for empty tensors.
    first = tf.reduce_max(tf.reshape(other, [-1])[:1])
    zero = tf.where(first == first, 0.0, float("nan"))  # noqa: PLR0124
    return tensor + tf.cast(zero, tensor.dtype)


def _contexts() -> list[RecomputeContext]:
    if not hasattr(_stack, "contexts"):
        _stack.contexts = []
    return _stack.contexts


def _make_seed(seed):
    if seed is not None:
        return tf.cast(seed, tf.int32)
    parent = get_recompute_context()
    if parent is None:
        return tf.random.uniform([], tf.int32.min, tf.int32.max, dtype=tf.int32)
    # The outer function runs twice, so the seed must be equal in both runs: it
    # depends on the outer seed and on the number of this call.
    return tf.random.stateless_uniform(
        [],
        seed=tf.stack([parent.seed, len(parent.children)]),
        minval=None,
        maxval=None,
        dtype=tf.int32,
    )


def _is_float_tensor(leaf) -> bool:
    return (
        tf.is_tensor(leaf)
        and not hasattr(leaf, "assign")
        and tf.as_dtype(leaf.dtype).is_floating
    )


def zero_that_depends_on(tensor: tf.Tensor) -> tf.Tensor:
    """Computes a 0, `<int32>[]`, from a tensor; no compiler simplifies it.

    Add it to the seed of a function that is recomputed. The dropout masks then
    depend on the incoming gradients, as the function's inputs do, so a compiler
    cannot draw the masks early and keep them.
    """
    first = tf.reshape(tensor, [-1])[:1]
    # The maximum of no elements is -inf, so this works for empty tensors.
    size = tf.abs(tf.cast(tf.reduce_max(first), tf.float32))
    return tf.cast(tf.minimum(size, 0.0), tf.int32)
