"""Embedding lookup, with factorised tables and masks."""

import math

import tensorflow as tf

from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class EmbeddingLookup(keras_compat.ConstructorConfig, graph_layer.GraphLayer):
    """Looks up ids in a table, and optionally projects the result.

    Args:
        vocab_size: number of ids.
        embedding_size: width of the table.
        projection_size: width of the output. If it differs from
            `embedding_size`, the result is projected (ALBERT's factorised
            embeddings). 0 for no projection.
        initializer_range: standard deviation of the table's truncated normal.
        use_one_hot_lookup: multiply by one-hot vectors instead of gathering.
            This is faster on TPUs for small tables. Ids out of range then give
            zeros.

    Raises:
        ValueError: a size is below 1 (`projection_size`: below 0).
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        projection_size: int = 0,
        initializer_range: float = 0.02,
        use_one_hot_lookup: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        if min(vocab_size, embedding_size) < 1 or projection_size < 0:
            raise ValueError(
                f"{self.name}: vocab_size ({vocab_size}) and embedding_size "
                f"({embedding_size}) must be at least 1, and "
                f"projection_size ({projection_size}) at least 0."
            )
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.projection_size = projection_size
        self.initializer_range = initializer_range
        self.use_one_hot_lookup = use_one_hot_lookup
        self.embedding_table = None
        self.projection = None
        if projection_size and projection_size != embedding_size:
            self.projection = tf.keras.layers.Dense(
                projection_size,
                kernel_initializer=tf.keras.initializers.TruncatedNormal(
                    stddev=1.0 / math.sqrt(embedding_size)
                ),
                dtype=self.dtype_policy,
                name="projection",
            )

    def build(self, input_shape):
        """Creates the table and builds the projection."""
        # Autocast is off because casting the table before every lookup costs
        # more than the lookup. (Keras 2 casts only the result.)
        options = {"autocast": False} if keras_compat.is_keras_3() else {}
        self.embedding_table = self.add_weight(
            name="embedding_table",
            shape=(self.vocab_size, self.embedding_size),
            initializer=tf.keras.initializers.TruncatedNormal(
                stddev=self.initializer_range
            ),
            trainable=True,
            **options,
        )
        if self.projection is not None:
            keras_compat.build_once(
                self.projection, (None, None, self.embedding_size)
            )
        super().build(input_shape)

    def call(self, input_ids, input_mask=None):
        """Looks up ids, `<int>[...]`.

        Where `input_mask` is 0, ids may be out of range, and the result is
        zeros.
        """
        input_ids = tf.cast(input_ids, tf.int32)
        if input_mask is not None:
            input_ids *= tf.cast(input_mask, tf.int32)
        # [..., embedding_size]
        if self.use_one_hot_lookup:
            # [..., vocab_size]
            one_hot = tf.one_hot(
                input_ids, self.vocab_size, dtype=self.compute_dtype
            )
            # [..., embedding_size]
            output = tf.tensordot(
                one_hot,
                tf.cast(self.embedding_table, self.compute_dtype),
                axes=1,
            )
        else:
            table = self.embedding_table
            if not isinstance(table, tf.Variable):
                # A variable of Keras 3 would be read as a whole.
                table = table.value
            output = tf.cast(tf.gather(table, input_ids), self.compute_dtype)
        if self.projection is not None:
            # [..., projection_size]
            output = self.projection(output)
        if input_mask is not None:
            # [..., 1]
            keep = tf.cast(input_mask, tf.bool)[..., tf.newaxis]
            output = tf.where(keep, output, tf.zeros([], output.dtype))
        return output

    def compute_output_shape(self, input_shape):
        """Returns the shape of the ids, with the size of the vectors."""
        return (*input_shape, self.projection_size or self.embedding_size)
