"""Exchanges tensors between the replicas of a `tf.distribute.Strategy`."""

import tensorflow as tf

from etcmodel.ops import shapes


def num_replicas() -> int:
    """Returns the number of replicas; 1 outside of a strategy's `run`."""
    context = tf.distribute.get_replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def replica_id() -> tf.Tensor:
    """Returns the index of this replica, from 0, as `<int32>[]`."""
    context = tf.distribute.get_replica_context()
    if num_replicas() == 1:
        return tf.constant(0)
    return tf.convert_to_tensor(context.replica_id_in_sync_group)


def all_gather(tensor: tf.Tensor) -> tf.Tensor:
    """Gathers the rows of all replicas, in replica order, on every replica.

    With `[1, 2]` on the first of two replicas and `[3, 4]` on the second, both
    get `[1, 2, 3, 4]`. The gradient of a replica's rows is summed over all
    replicas, so a loss on one replica also trains the rows of another. All
    replicas must call this function in the same order, with the same shape, and
    outside of conditions and loops.
    """
    replicas = num_replicas()
    if replicas == 1:
        return tensor
    rows = shapes.get_shape_list(tensor)[0]
    dtype = tensor.dtype
    if dtype == tf.bfloat16:
        # Gathering between processes does not support bfloat16.
        tensor = tf.cast(tensor, tf.float32)
    # Gathering between processes needs a device, which inputs lack.
    tensor = tf.identity(tensor)
    # [replicas * rows, ...]
    gathered = tf.distribute.get_replica_context().all_gather(tensor, axis=0)
    gathered = tf.cast(gathered, dtype)
    if isinstance(rows, int):
        gathered = tf.ensure_shape(
            gathered, [replicas * rows, *tensor.shape[1:]]
        )
    return gathered


def all_sum(tensor: tf.Tensor) -> tf.Tensor:
    """Sums a tensor over all replicas; the sum has no gradient."""
    tensor = tf.stop_gradient(tensor)
    if num_replicas() == 1:
        return tensor
    return tf.distribute.get_replica_context().all_reduce(
        tf.distribute.ReduceOp.SUM, tensor
    )
