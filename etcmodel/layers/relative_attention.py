"""Attention layers with relative labels.

The layers hold the weights; `etcmodel.ops.attention` computes the attention.
"""

import tensorflow as tf

from etcmodel.layers import dense_rows
from etcmodel.layers import dropout
from etcmodel.layers import graph_layer
from etcmodel.layers import initializers
from etcmodel.layers import keras_compat
from etcmodel.ops import attention

# Sublayers of `RelativeAttention`, in the order in which they are applied.
_SUBLAYERS = (
    "query_projection",
    "key_projection",
    "value_projection",
    "qkv_relative_attention",
    "output_projection",
)


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class ProjectAttentionHeads(keras_compat.ConstructorConfig):
    """Projects the last axis to several attention heads.

    Without an `initializer`, the kernel is Glorot uniform.

    Raises:
        ValueError: `num_heads` or `size_per_head` is below 1.
    """

    _initializers = ("initializer",)

    def __init__(
        self,
        num_heads: int,
        size_per_head: int,
        use_bias: bool = True,
        initializer=None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(
            name=keras_compat.default_name(name, "attention_head_projection"),
            **kwargs,
        )
        check_at_least_1(num_heads=num_heads, size_per_head=size_per_head)
        self.num_heads = num_heads
        self.size_per_head = size_per_head
        self.use_bias = use_bias
        self.initializer = tf.keras.initializers.get(initializer)
        self.linear = tf.keras.layers.Dense(
            num_heads * size_per_head,
            use_bias=use_bias,
            kernel_initializer=initializers.clone_kernel(self.initializer),
            dtype=self.dtype_policy,
            name="linear",
        )

    def build(self, input_shape):
        """Builds the projection from the last axis of `input_shape`."""
        keras_compat.build_once(self.linear, (None, None, input_shape[-1]))
        super().build(input_shape)

    def call(self, inputs):
        """Projects `<float>[..., size]` to `[..., heads, size_per_head]`."""
        return dense_rows.apply(
            self.linear, inputs, split=[self.num_heads, self.size_per_head]
        )

    def compute_output_shape(self, input_shape):
        """Returns the input shape, with heads and their size as last axes."""
        return (*input_shape[:-1], self.num_heads, self.size_per_head)


class MultiHeadLayer(keras_compat.ConstructorConfig, graph_layer.GraphLayer):
    """Base class of layers with projections to `num_heads` heads.

    Attributes:
        score_observer: function that each eager call gets functions that
            compute its attention probabilities, for inspection; None for none.
            `FusedGlobalLocalAttention` passes those of the long and of the
            global queries: query positions -> the results of
            `attention.long_scores` and `attention.global_scores`. Layers with
            a side input pass one: number of an example -> probabilities of
            each of its inputs, `<float>[heads, 1, main, to]`.
    """

    score_observer = None

    def _observe_examples(self, attend, examples):
        """Calls the observer; `attend` takes an example's tensors by name."""
        # Another thread may reset the attribute.
        observer = self.score_observer
        if observer is None:
            return

        def scores_of(i):
            return attend(
                **{
                    # Tensors that all examples share have a first axis of 1.
                    name: x if x is None or x.shape[0] == 1 else x[i : i + 1]
                    for name, x in examples.items()
                }
            )

        observer(scores_of)

    def _make_head_projection(self, name, total_size):
        return ProjectAttentionHeads(
            self.num_heads,
            total_size // self.num_heads,
            initializer=self.initializer,
            dtype=self.dtype_policy,
            name=name,
        )

    def _make_output_projection(self, name, size):
        return tf.keras.layers.Dense(
            size,
            kernel_initializer=initializers.clone_kernel(self.initializer),
            dtype=self.dtype_policy,
            name=name,
        )


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class QkvRelativeAttention(
    keras_compat.ConstructorConfig, graph_layer.GraphLayer
):
    """Attention of given queries to given keys, with relative labels.

    The score of a pair is `(q.k + q.E[id] + b[id]) / sqrt(size)` (paper,
    section 3.2, plus a bias per label). A query whose keys are all masked gets
    zeros.

    Args:
        relative_vocab_size: number of labels; None for no labels.
        att_dropout_prob: dropout on the attention probabilities.
        initializer: initializer of the label vectors; by default a truncated
            normal with a standard deviation of 0.5.
        use_one_hot_lookup: look labels up by products with one-hot vectors
            instead of gathers. The results are the same.

    Raises:
        ValueError: `relative_vocab_size` is below 1.
    """

    _initializers = ("initializer",)

    def __init__(
        self,
        relative_vocab_size: int | None = None,
        att_dropout_prob: float = 0.0,
        initializer=None,
        use_one_hot_lookup: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        if relative_vocab_size is not None:
            check_at_least_1(relative_vocab_size=relative_vocab_size)
        self.relative_vocab_size = relative_vocab_size
        self.att_dropout_prob = att_dropout_prob
        if initializer is None:
            initializer = tf.keras.initializers.TruncatedNormal(stddev=0.5)
        self.initializer = tf.keras.initializers.get(initializer)
        self.use_one_hot_lookup = use_one_hot_lookup
        self.att_dropout = dropout.RecomputingDropout(
            att_dropout_prob, dtype=self.dtype_policy, name="att_dropout"
        )
        self.relative_emb_table = None
        self.relative_bias_table = None

    def build(self, input_shape):
        """Creates the label tables from the last two axes of the queries."""
        if self.relative_vocab_size is not None:
            num_heads, size_per_head = input_shape[-2:]
            if num_heads is None or size_per_head is None:
                raise ValueError(
                    f"{self.name}: the last two axes of the queries (heads and "
                    "size of each head) must be known when the layer is "
                    f"built, but their shape is {tuple(input_shape)}."
                )
            self.relative_emb_table = self.add_weight(
                name="relative_emb_table",
                shape=(self.relative_vocab_size, num_heads, size_per_head),
                initializer=initializers.clone(self.initializer),
                trainable=True,
            )
            self.relative_bias_table = self.add_weight(
                name="relative_bias_table",
                shape=(self.relative_vocab_size, num_heads),
                initializer="zeros",
                trainable=True,
            )
        super().build(input_shape)

    def call(
        self,
        queries,
        keys,
        values,
        att_mask=None,
        relative_att_ids=None,
        return_attention_scores=False,
        training=None,
    ):
        """Attends to all keys.

        Queries are `<float>[batch, from, heads, size]`, keys and values
        `<float>[batch, to, heads, size]`. `att_mask` is `<int32 or bool>[batch,
        from, to]`, 1 where the query may attend to the key; None allows all
        pairs. `relative_att_ids` are `<int32>[batch, from, to]` labels, or
        None.

        Returns:
            `<float>[batch, from, heads, value_size]`. With
            `return_attention_scores`, a pair of it and the probabilities
            before dropout, `<float>[batch, heads, from, to]`.

        Raises:
            ValueError: ids are given, but `relative_vocab_size` is None.
        """
        call = (
            queries,
            attention.Keys(keys, values, att_mask, relative_att_ids),
            self.label_table(queries.dtype, relative_att_ids),
        )
        output = attention.dense_attention(
            *call, self.att_dropout.of_probabilities(training)
        )
        if return_attention_scores:
            return output, attention.dense_scores(*call)
        return output

    def label_table(self, dtype, *ids) -> attention.LabelTable | None:
        """Returns the label tables as tensors; None if all `ids` are None."""
        if all(i is None for i in ids):
            return None
        if self.relative_vocab_size is None:
            raise ValueError(
                f"{self.name}: relative attention ids were given, but the "
                "layer was made without labels. Set `relative_vocab_size`, or "
                "leave the ids out."
            )
        return attention.LabelTable(
            tf.cast(tf.convert_to_tensor(self.relative_emb_table), dtype),
            tf.cast(tf.convert_to_tensor(self.relative_bias_table), dtype),
            self.use_one_hot_lookup,
        )

    def compute_output_shape(
        self,
        queries_shape=None,
        keys_shape=None,
        values_shape=None,
        input_shape=None,
    ):
        """Returns the shape of the queries, with the size of the values."""
        keras_compat.check_is_known(self, values_shape, input_shape)
        return (*queries_shape[:-1], values_shape[-1])


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class RelativeAttention(MultiHeadLayer):
    """Multi-head attention with relative labels (paper, section 3.2).

    Args:
        hidden_size: size of the output.
        total_key_size: size of the keys of all heads together, `hidden_size`
            by default.
        total_value_size: size of the values of all heads together,
            `hidden_size` by default.
        initializer: initializer of the kernels, not of the label vectors.
        query_projection: a `ProjectAttentionHeads` to share; by default the
            layer makes its own.
        key_projection: the same for the keys.
        value_projection: the same for the values.
        qkv_relative_attention: a `QkvRelativeAttention` to share; by default
            the layer makes one from the remaining arguments.
        output_projection: a `Dense` layer to share.

    Raises:
        ValueError: a total size is not a multiple of `num_heads`.
    """

    _initializers = ("initializer",)

    _added_to_config = _SUBLAYERS

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        total_key_size: int | None = None,
        total_value_size: int | None = None,
        relative_vocab_size: int | None = None,
        att_dropout_prob: float = 0.0,
        initializer=None,
        query_projection=None,
        key_projection=None,
        value_projection=None,
        qkv_relative_attention=None,
        output_projection=None,
        use_one_hot_lookup: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        total_key_size = total_key_size or hidden_size
        total_value_size = total_value_size or hidden_size
        check_divisible(
            num_heads,
            total_key_size=total_key_size,
            total_value_size=total_value_size,
        )
        self._to_size = None
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.total_key_size = total_key_size
        self.total_value_size = total_value_size
        self.relative_vocab_size = relative_vocab_size
        self.att_dropout_prob = att_dropout_prob
        self.initializer = tf.keras.initializers.get(initializer)
        self.use_one_hot_lookup = use_one_hot_lookup
        given = (
            query_projection,
            key_projection,
            value_projection,
            qkv_relative_attention,
            output_projection,
        )
        self._injected = {
            name: layer
            for name, layer in zip(_SUBLAYERS, given, strict=True)
            if layer is not None
        }
        make = self._make_head_projection
        self.query_projection = query_projection or make(
            "query_projection", total_key_size
        )
        self.key_projection = key_projection or make(
            "key_projection", total_key_size
        )
        self.value_projection = value_projection or make(
            "value_projection", total_value_size
        )
        self.qkv_relative_attention = (
            qkv_relative_attention
            or QkvRelativeAttention(
                relative_vocab_size=relative_vocab_size,
                att_dropout_prob=att_dropout_prob,
                use_one_hot_lookup=use_one_hot_lookup,
                dtype=self.dtype_policy,
                name="qkv_relative_attention",
            )
        )
        self.output_projection = (
            output_projection
            or self._make_output_projection("output_projection", hidden_size)
        )

    def build(self, input_shape):
        """Builds all sublayers, for self-attention if no call comes first."""
        keras_compat.build_once(
            self.query_projection, (None, None, input_shape[-1])
        )
        keras_compat.build_all(
            (None, None, self._to_size or input_shape[-1]),
            self.key_projection,
            self.value_projection,
        )
        size_per_head = self.total_key_size // self.num_heads
        keras_compat.build_once(
            self.qkv_relative_attention,
            (None, None, self.num_heads, size_per_head),
        )
        keras_compat.build_once(
            self.output_projection, (None, None, self.total_value_size)
        )
        super().build(input_shape)

    def get_build_config(self):
        """Returns the arguments of `build_from_config`."""
        config = super().get_build_config()
        return config and {**config, "to_size": self._to_size}

    def build_from_config(self, config):
        """Builds the layer as it was built when it was saved."""
        config = dict(config)
        self._to_size = config.pop("to_size", None)
        super().build_from_config(config)

    def __call__(self, from_seq, to_seq=None, **kwargs):
        """Calls the layer; `to_seq` is `from_seq` by default."""
        if to_seq is not None and not self.built:
            self._to_size = to_seq.shape[-1]
        return super().__call__(from_seq, to_seq=to_seq, **kwargs)

    def call(
        self,
        from_seq,
        to_seq=None,
        att_mask=None,
        relative_att_ids=None,
        return_attention_scores=False,
        training=None,
    ):
        """Attends from `<float>[batch, from, from_size]` to `to_seq`.

        `to_seq` is `<float>[batch, to, to_size]`, or `from_seq` if None. The
        other arguments are those of `QkvRelativeAttention`.

        Returns:
            `<float>[batch, from, hidden_size]`. With
            `return_attention_scores`, a pair of it and
            `<float>[batch, heads, from, to]`.
        """
        if to_seq is None:
            to_seq = from_seq
        # [batch, from, heads, value_size]
        output = self.qkv_relative_attention(
            self.query_projection(from_seq),
            self.key_projection(to_seq),
            self.value_projection(to_seq),
            att_mask=att_mask,
            relative_att_ids=relative_att_ids,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        scores = None
        if return_attention_scores:
            output, scores = output
        # [batch, from, hidden_size]
        output = dense_rows.apply(self.output_projection, output, row_rank=2)
        return (output, scores) if return_attention_scores else output

    def compute_output_shape(self, input_shape):
        """Returns the shape of the first input, with the hidden size."""
        return (*input_shape[:-1], self.hidden_size)

    def get_config(self):
        """Returns the constructor's arguments, including given sublayers."""
        return {
            **super().get_config(),
            **{
                name: tf.keras.layers.serialize(layer)
                for name, layer in self._injected.items()
            },
        }

    @classmethod
    def from_config(cls, config):
        """Creates the layer, and the given sublayers, from a config."""
        config = dict(config)
        for name in _SUBLAYERS:
            if isinstance(config.get(name), dict):
                config[name] = tf.keras.layers.deserialize(config[name])
        return cls(**config)


def check_at_least_1(**sizes):
    """Raises a ValueError that names the first size below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, but is {size}.")


def check_divisible(num_heads, **sizes):
    """Raises a ValueError unless all sizes are multiples of `num_heads`."""
    check_at_least_1(num_heads=num_heads)
    for name, size in sizes.items():
        if size % num_heads:
            raise ValueError(
                f"{name} must be a multiple of num_heads ({num_heads}), but is "
                f"{size}."
            )
