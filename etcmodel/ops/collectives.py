"""What the replicas of a `tf.distribute.Strategy` know of each other."""

import tensorflow as tf

from etcmodel.ops import shapes


def num_replicas() -> int:
    """Number of replicas that run this code at once; 1 outside of `run`."""
    context = tf.distribute.get_replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def replica_id() -> tf.Tensor:
    """Number of this replica among those of `num_replicas`, `<int32>[]`."""
    context = tf.distribute.get_replica_context()
    if num_replicas() == 1:
        return tf.constant(0)
    return tf.convert_to_tensor(context.replica_id_in_sync_group)


def all_gather(tensor: tf.Tensor) -> tf.Tensor:
    """The rows of all replicas, one replica after the other, on each of them.

    With `[1, 2]` on the first of two replicas and `[3, 4]` on the second, both
    get `[1, 2, 3, 4]`. The gradient that goes back to a replica's rows is the
    sum of those of all replicas: what one replica makes of the rows of another
    is learned by the other. All replicas must call it, in the same order, with
    the same shape, and outside of conditions and loops.
    """
    replicas = num_replicas()
    if replicas == 1:
        return tensor
    rows = shapes.get_shape_list(tensor)[0]
    dtype = tensor.dtype
    if dtype == tf.bfloat16:
        # Between processes there is no gathering of it.
        tensor = tf.cast(tensor, tf.float32)
    # Between processes it must have a device, which what is read has not.
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
    """The sum over all replicas, which takes part in no gradient."""
    tensor = tf.stop_gradient(tensor)
    if num_replicas() == 1:
        return tensor
    return tf.distribute.get_replica_context().all_reduce(
        tf.distribute.ReduceOp.SUM, tensor
    )
