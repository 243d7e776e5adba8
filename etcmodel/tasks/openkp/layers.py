"""OpenKP's layers: embed a node's appearance, and score every phrase."""

import tensorflow as tf

from etcmodel.datasets.openkp import FEATURES
from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat
from etcmodel.layers.activations import get_activation
from etcmodel.layers.normalization import LayerNormalization
from etcmodel.models.heads import MASKED_LOGIT
from etcmodel.ops import checks

# Ranges of positions and sizes in pixels, for a node and for its parent.
_RANGES = {
    "x": (-50.0, 1500.0),
    "width": (0.0, 1500.0),
    "y": (-50.0, 6000.0),
    "height": (0.0, 18000.0),
}
_SCALED = (*_RANGES, *(f"parent_{name}" for name in _RANGES))
_OTHER_FLAGS = (
    "is_inline",
    "is_leaf",
    "parent_is_heading",
    "parent_is_leaf",
    "parent_is_bold",
)
_WORDS_EXAMPLE = (
    "Example of a word of two tokens, a word of one, and padding: [1, 1, 2, 0]."
)
# Flags whose combination is the kind of a node; the first is the most
# significant bit.
_CROSSED = ("is_block", "is_heading", "is_bold")
# The maximum font size of each bucket except the last.
_FONT_SIZES = (0.0, *map(float, range(8, 25)), 29.0, 34.0, 39.0, 44.0, 49.0)


def visual_classes(features: tf.Tensor) -> tf.Tensor:
    """Encodes node kinds and font sizes (own and parent's) as one-hot vectors.

    Maps `<float32>[..., 20]` (see `datasets.openkp.FEATURES`) to `[..., 8 + 24
    + 24]`. A bold block that is not a heading has the kind 5, binary 101. Font
    sizes in points `[0, 8, 9, 25, 29, 30, 50]` are in the buckets `[0, 1, 2,
    18, 18, 19, 23]`.
    """
    flags = tf.cast(_take(features, _CROSSED) > 0.5, tf.int32)
    # [...]
    kind = tf.reduce_sum(flags * [4, 2, 1], axis=-1)
    sizes = tf.round(_take(features, ("font_size", "parent_font_size")))
    # [..., 2]
    buckets = tf.reduce_sum(
        tf.cast(sizes[..., tf.newaxis] > tf.constant(_FONT_SIZES), tf.int32), -1
    )
    number = len(_FONT_SIZES) + 1
    return tf.concat(
        [
            tf.one_hot(kind, 2 ** len(_CROSSED)),
            tf.one_hot(buckets[..., 0], number),
            tf.one_hot(buckets[..., 1], number),
        ],
        axis=-1,
    )


def visual_numbers(features: tf.Tensor) -> tf.Tensor:
    """Clips and scales positions and sizes, and appends the remaining flags.

    The results are in [-1, 1]: `<float32>[..., 20]` to `[..., 8 + 5]`. For
    widths from 0 to 1,500, 728 becomes -0.02933, and 9,000 becomes 1.
    """
    # [8]
    least, greatest = tf.unstack(tf.constant([*_RANGES.values()] * 2), axis=1)
    values = tf.clip_by_value(_take(features, _SCALED), least, greatest)
    scaled = 2.0 * (values - least) / (greatest - least) - 1.0
    return tf.concat([scaled, _take(features, _OTHER_FLAGS)], axis=-1)


def _take(features, names):
    """Selects some of the features, `<float32>[..., names]`."""
    return tf.gather(features, [FEATURES.index(x) for x in names], axis=-1)


class _Layer(graph_layer.GraphLayer):
    """Base class; `number` counts dense layers, or the words of a phrase."""

    def __init__(
        self,
        hidden_size: int,
        number: int,
        hidden_act: str = "gelu",
        initializer_range: float = 0.02,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.hidden_size = hidden_size
        self.number = number
        self.hidden_act = hidden_act
        self.initializer_range = initializer_range

    def _make(self, layer, name, *args, divisor=1.0, **kwargs):
        """Makes a layer with this layer's initializer."""
        deviation = self.initializer_range / divisor**0.5
        return layer(
            *args,
            kernel_initializer=tf.keras.initializers.TruncatedNormal(
                stddev=deviation
            ),
            name=name,
            **{"dtype": self.dtype_policy, **kwargs},
        )

    def get_config(self):
        """Returns the constructor's arguments."""
        names = ("hidden_size", "number", "hidden_act", "initializer_range")
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in names},
        }


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class VisualEmbedding(_Layer):
    """Embeds a node's appearance, as a vector to add to token embeddings.

    Kinds and font sizes have embeddings; positions, sizes and other flags go
    through `number` dense layers, in float32. Source: ETC paper, Appendix C
    (OpenKP); ranges and buckets are the original code's.
    """

    def __init__(self, hidden_size: int, number: int = 2, **kwargs):
        super().__init__(hidden_size, number, autocast=False, **kwargs)
        if number < 1:
            raise ValueError(
                f"{self.name}: there are {number} dense layers, expected at "
                "least one."
            )
        dense = tf.keras.layers.Dense
        self.classes = self._make(dense, "classes", hidden_size, use_bias=False)
        self.dense_layers = [
            self._make(
                dense,
                f"dense_{i}",
                hidden_size,
                activation=get_activation(self.hidden_act),
                # In half precision, the positions of adjacent lines would be
                # equal.
                dtype="float32",
            )
            for i in range(number)
        ]
        keras_compat.track_layers(self, "dense_layers")

    def build(self, input_shape):
        """Builds the layers from the static sizes of the input."""
        outer = tuple(input_shape[:-1])
        keras_compat.build_once(self.classes, (*outer, 56))
        for i, layer in enumerate(self.dense_layers):
            keras_compat.build_once(
                layer, (*outer, self.hidden_size if i else 13)
            )
        super().build(input_shape)

    def call(self, features):
        """Maps `<float>[batch, nodes, 20]` to `[batch, nodes, hidden_size]`."""
        hidden = visual_numbers(features)
        for layer in self.dense_layers:
            # [batch, nodes, hidden_size]
            hidden = layer(hidden)
        embedded = self.classes(visual_classes(features))
        return embedded + tf.cast(hidden, embedded.dtype)


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class NgramHead(_Layer):
    """Computes a logit for every phrase of at most `number` words.

    The vectors of a word's tokens are summed, a convolution over the words
    gives the vector of each phrase, and a dense layer gives its logit.
    Convolutions are computed as matrix products, which is faster. Source: ETC
    paper, Appendix C (OpenKP).
    """

    def __init__(self, hidden_size: int, number: int = 5, **kwargs):
        super().__init__(hidden_size, number, **kwargs)
        self.word_norm = LayerNormalization(
            name="word_norm", dtype=self.dtype_policy
        )
        sizes = range(1, number + 1)
        self.convolutions = [
            self._make(
                tf.keras.layers.Dense,
                f"convolution_{n}",
                hidden_size,
                activation=get_activation(self.hidden_act),
                divisor=n,
            )
            for n in sizes
        ]
        self.norms = [
            LayerNormalization(name=f"norm_{n}", dtype=self.dtype_policy)
            for n in sizes
        ]
        self.logits = [
            self._make(
                tf.keras.layers.Dense,
                f"logit_{n}",
                1,
                use_bias=False,
                dtype="float32",
            )
            for n in sizes
        ]
        keras_compat.track_layers(self, "convolutions", "norms", "logits")

    def build(self, input_shape):
        """Builds the layers from the static sizes of the input."""
        for layer in (self.word_norm, *self.norms, *self.logits):
            keras_compat.build_once(layer, (None, None, self.hidden_size))
        for i, layer in enumerate(self.convolutions):
            size = (i + 1) * self.hidden_size
            keras_compat.build_once(layer, (None, None, size))
        super().build(input_shape)

    def call(self, long_output, words):
        """Computes the logits, `<float32>[batch, number, long]`.

        Row n - 1 has, at position i, the logit of the phrase of n words that
        starts with word i + 1; -10,000 beyond the last word. `words` has the
        number of each token's word, from 1; 0 for none, `<int32>[batch, long]`.
        A number out of range would be a word of another row, and raises an
        error; see `ops.checks`.
        """
        # [batch]
        most = tf.fill(tf.shape(words)[:1], tf.shape(words)[1])
        check = checks.in_range(
            "words", words, 0, most, "expected 0 to the number of long tokens"
        )
        (words,) = checks.guard([check], _WORDS_EXAMPLE, words)
        # [batch, long, hidden_size]
        embedded = self.word_norm(sum_words(long_output, words))
        # [batch, 1]
        num_words = tf.reduce_max(words, axis=1, keepdims=True)
        logits, length = [], tf.shape(words)[1]
        # [batch, long + number - 1, hidden_size]
        padded = tf.pad(embedded, [[0, 0], [0, self.number - 1], [0, 0]])
        behind = []
        for i in range(self.number):
            behind.append(padded[:, i : i + length])
            # [batch, long, hidden_size]
            phrases = self.convolutions[i](tf.concat(behind, axis=-1))
            # [batch, long]
            scores = self.logits[i](
                tf.cast(self.norms[i](phrases), tf.float32)
            )[..., 0]
            is_there = tf.range(length) + i < num_words
            logits.append(tf.where(is_there, scores, MASKED_LOGIT))
        return tf.stack(logits, axis=1)


def sum_words(tokens: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """Sums the vectors of each word's tokens, `<float>[batch, long, size]`.

    Example: for tokens of the words `[1, 1, 2, 0]`, the first vector is the sum
    of the first two tokens, the second is the third token, others are zeros.
    """
    batch, length, size = tf.unstack(tf.shape(tokens))
    index = tf.range(batch)[:, tf.newaxis] * length + words - 1
    # [batch * long, size]
    sums = tf.math.unsorted_segment_sum(
        tf.reshape(tokens, [-1, size]),
        tf.reshape(tf.where(words > 0, index, -1), [-1]),
        batch * length,
    )
    return tf.ensure_shape(
        tf.reshape(sums, [batch, length, size]), tokens.shape
    )
