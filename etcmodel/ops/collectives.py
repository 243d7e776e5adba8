"""Exchange of tensors between replicas of a `tf.distribute.Strategy`."""

import tensorflow as tf

from etcmodel.ops import shapes


def num_replicas() -> int:
    """Returns how many replicas run this code; 1 outside of `run`."""
    context = tf.distribute.get_replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def replica_id() -> tf.Tensor:
    """Returns the number of this replica, from 0, `<int32>[]`."""
    context = tf.distribute.get_replica_context()
    if num_replicas() == 1:
        return tf.constant(0)
    return tf.convert_to_tensor(context.replica_id_in_sync_group)


def all_gather(tensor: tf.Tensor) -> tf.Tensor:
    """Gathers the rows of all replicas, in order, on each of them.

    With `[1, 2]` on the first of two replicas and `[3, 4]` on the second, both
    get `[1, 2, 3, 4]`. The gradient of a replica's rows is the sum over all
    replicas, so that losses on one replica train the rows of another. All
    replicas must call it, in the same order, with the same shape, and outside
    of conditions and loops.
    """
    replicas = num_replicas()
    if replicas == 1:
        return tensor
    rows = shapes.get_shape_list(tensor)[0]
    dtype = tensor.dtype
    if dtype == tf.bfloat16:
        # Not supported between processes.
        tensor = tf.cast(tensor, tf.float32)
    # Between processes the tensor needs a device; inputs have none.
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
    """Sums over all replicas, without a gradient."""
    tensor = tf.stop_gradient(tensor)
    if num_replicas() == 1:
        return tensor
    return tf.distribute.get_replica_context().all_reduce(
        tf.distribute.ReduceOp.SUM, tensor
    )
