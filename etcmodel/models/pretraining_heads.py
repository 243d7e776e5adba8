"""The masked language model head that pre-trains encoders."""

import tensorflow as tf

from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat
from etcmodel.layers import normalization
from etcmodel.layers.activations import get_activation
from etcmodel.ops import shapes


def masked_lm_losses(logits, label_ids) -> tf.Tensor:
    """Computes `-log softmax(logits)[label_id]` in nats, `<float32>[batch, n]`.

    Args:
        logits: `<float>[batch, n, vocab_size]`.
        label_ids: `<int>[batch, n]`. Padding needs valid token ids, too.
    """
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(label_ids, tf.int32), logits=tf.cast(logits, tf.float32)
    )


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class LanguageModelHead(keras_compat.ConstructorConfig, graph_layer.GraphLayer):
    """Predicts tokens with the embedding table of the encoder.

    The logits are `norm(hidden_act(x W + b)) table^T + output_bias`, as in
    BERT's masked language model. ReadTwice is pre-trained with this head, too
    (ReadTwice paper, section 2.2).

    The table is a weight of the encoder and gets gradients from both uses. Call
    the encoder and the head in one layer or model of your own. A functional
    model that passes a variable to a layer cannot be saved, or the loaded model
    no longer shares the variable.

    Example:
        states = encoder(**batch).final_hidden_states
        positions, weights = true_positions(is_masked, max_positions=80)
        logits = head(
            gather_positions(states, positions),
            encoder.get_token_embedding_table(),
        )

    Args:
        vocab_size: number of token ids.
        embedding_size: width of the embedding table.
        hidden_act: name of the activation, as in `get_activation`.
        initializer_range: standard deviation of the kernel's initial values.
        layer_norm_epsilon: added to the variance.

    Raises:
        ValueError: a size is below 1, or the activation does not exist.
    """

    _FORMER_NAMES = {"activation": "hidden_act"}

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        hidden_act: str | None = "gelu",
        initializer_range: float = 0.02,
        layer_norm_epsilon: float = 1e-3,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        if min(vocab_size, embedding_size) < 1:
            raise ValueError(
                f"{self.name}: vocab_size ({vocab_size}) and embedding_size "
                f"({embedding_size}) must be at least 1."
            )
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.hidden_act = hidden_act
        self.initializer_range = initializer_range
        self.layer_norm_epsilon = layer_norm_epsilon
        self.dense = tf.keras.layers.Dense(
            embedding_size,
            activation=get_activation(hidden_act),
            kernel_initializer=tf.keras.initializers.TruncatedNormal(
                stddev=initializer_range
            ),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.layer_norm = normalization.LayerNormalization(
            epsilon=layer_norm_epsilon,
            dtype=self.dtype_policy,
            name="layer_norm",
        )
        self.output_bias = None

    def build(self, input_shape):
        """Creates the weights; the last axis needs a static size."""
        size = static_size(self.name, "hidden_states", input_shape)
        keras_compat.build_once(self.dense, (None, size))
        keras_compat.build_once(self.layer_norm, (None, self.embedding_size))
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(self.vocab_size,),
            initializer="zeros",
            trainable=True,
            # The bias is added in float32.
            autocast=False,
        )
        super().build(input_shape)

    def call(self, hidden_states, embedding_table):
        """Computes `<float32>[..., vocab_size]` logits.

        Args:
            hidden_states: `<float>[..., hidden_size]`. To save memory, pass
                only the masked positions, selected with `gather_positions`.
            embedding_table: `<float>[vocab_size, embedding_size]`.

        Raises:
            ValueError: the table has the wrong shape.
        """
        table = tf.cast(
            tf.convert_to_tensor(embedding_table), self.compute_dtype
        )
        shape = [self.vocab_size, self.embedding_size]
        if not table.shape.is_compatible_with(shape):
            raise ValueError(
                f"{self.name}: the embedding table has the shape {table.shape},"
                f" expected [vocab_size, embedding_size], which is {shape}."
            )
        # [..., embedding_size]
        x = self.layer_norm(self.dense(hidden_states))
        leading = shapes.get_shape_list(x)[:-1]
        # [rows, embedding_size]
        rows = tf.reshape(x, [-1, self.embedding_size])
        # [rows, vocab_size]
        logits = tf.cast(tf.matmul(rows, table, transpose_b=True), tf.float32)
        logits += tf.cast(tf.convert_to_tensor(self.output_bias), tf.float32)
        # [..., vocab_size]
        return tf.reshape(logits, leading + [self.vocab_size])

    def compute_output_shape(self, input_shape):
        """Returns a logit for each token of the vocabulary."""
        return (*input_shape[:-1], self.vocab_size)


def make_language_model_head(config, **options) -> LanguageModelHead:
    """Builds a head with the sizes and the activation of a configuration."""
    head = LanguageModelHead(
        config.vocab_size,
        config.embedding_size or config.hidden_size,
        hidden_act=config.hidden_act,
        initializer_range=config.initializer_range,
        name="language_model_head",
        **options,
    )
    keras_compat.build_once(head, (None, None, config.hidden_size))
    return head


def static_size(layer_name, argument, shape):
    """Returns the size of the last axis, or raises a ValueError if unknown."""
    size = None if shape is None else shape[-1]
    if size is None:
        raise ValueError(
            f"{layer_name}: {argument} needs a static size of its last axis, "
            f"but has the shape {shape}. Set it with tf.ensure_shape."
        )
    return int(size)
