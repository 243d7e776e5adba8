"""Small layers on top of an encoder, shared by several tasks."""

import tensorflow as tf

from etcmodel.layers import graph_layer
from etcmodel.layers import initializers
from etcmodel.layers import keras_compat
from etcmodel.layers.activations import get_activation
from etcmodel.layers.residual_block import ResidualBlock

# The logit of tokens that cannot be chosen.
MASKED_LOGIT = -10000.0


def make_logits_layer(
    units: int,
    initializer_range: float | None,
    name: str,
    bias: float = 0.0,
) -> tf.keras.layers.Dense:
    """Returns a dense layer for logits, in float32 under any dtype policy.

    `initializer_range=None` means Keras's default. Biases start at `bias`.
    """
    return tf.keras.layers.Dense(
        units,
        bias_initializer=tf.keras.initializers.Constant(bias),
        kernel_initializer=initializers.clone_kernel(
            make_kernel_initializer(initializer_range)
        ),
        name=name,
        dtype="float32",
    )


def make_kernel_initializer(initializer_range: float | None):
    """Returns a truncated normal initializer; None if the range is None."""
    if initializer_range is None:
        return None
    return tf.keras.initializers.TruncatedNormal(stddev=initializer_range)


def mask_logits(
    logits: tf.Tensor,
    can_be_chosen: tf.Tensor,
    masked_logit: float = MASKED_LOGIT,
) -> tf.Tensor:
    """Sets the logits of tokens that cannot be chosen to `masked_logit`."""
    allowed = tf.cast(can_be_chosen, tf.float32)
    return logits * allowed + masked_logit * (1.0 - allowed)


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class GlobalChoiceHead(keras_compat.ConstructorConfig, graph_layer.GraphLayer):
    """Computes softmax logits of the global tokens of one type.

    In WikiHop these tokens are the candidates ("a dense layer from the global
    input embeddings", ETC paper, Appendix C). Example, with candidate type 6:

        global_token_type_ids   6     6     5      7      0
        logits                0.3  -1.2  -1e4   -1e4   -1e4

    Args:
        choice_type_id: token type of the global tokens to choose from.
        intermediate_size: inner size of the feed-forward block.
        hidden_act: activation of the block; "gelu" is the tanh form.
        hidden_dropout_prob: dropout probability of the block.
        initializer_range: standard deviation of the logits' initial weights.
        add_final_layer: whether to put a feed-forward block (post-norm
            residual) between the encoder and the logits.
    """

    def __init__(
        self,
        choice_type_id,
        intermediate_size,
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        initializer_range=0.02,
        add_final_layer=True,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.choice_type_id = choice_type_id
        self.intermediate_size = intermediate_size
        self.hidden_act = hidden_act
        self.hidden_dropout_prob = hidden_dropout_prob
        self.initializer_range = initializer_range
        self.add_final_layer = add_final_layer
        self.transform = None
        if add_final_layer:
            self.transform = ResidualBlock(
                dropout_probability=hidden_dropout_prob,
                inner_intermediate_size=intermediate_size,
                inner_activation=get_activation(hidden_act),
                name="transform",
                dtype=self.dtype_policy,
            )
        self.logit = make_logits_layer(1, initializer_range, "logit")

    def build(self, input_shape):
        """Builds the layers from the width of `global_output`."""
        keras_compat.build_all(input_shape, self.transform, self.logit)
        super().build(input_shape)

    def call(self, global_output, global_token_type_ids, training=None):
        """Computes `<float32>[batch, global]` logits.

        Args:
            global_output: `<float>[batch, global, hidden]`.
            global_token_type_ids: `<int>[batch, global]`.
            training: whether dropout is applied.
        """
        if self.transform is not None:
            global_output = self.transform(global_output, training=training)
        # [batch, global]
        logits = self.logit(tf.cast(global_output, tf.float32))[..., 0]
        return mask_logits(
            logits, tf.equal(global_token_type_ids, self.choice_type_id)
        )

    def compute_output_shape(self, input_shape):
        """Returns a logit for each global token."""
        return tuple(input_shape[:-1])
