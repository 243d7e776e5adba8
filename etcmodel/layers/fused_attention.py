"""Global-local attention: long and global tokens attend to each other."""

import functools

import tensorflow as tf

from etcmodel.layers import dense_rows
from etcmodel.layers import keras_compat
from etcmodel.layers import local_attention
from etcmodel.layers import relative_attention
from etcmodel.ops import attention

# Directions of attention: "l2g" is from long queries to global keys.
_DIRECTIONS = ("l2l", "l2g", "g2g", "g2l")


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class FusedGlobalLocalAttention(relative_attention.MultiHeadLayer):
    """Global-local attention in two joint softmaxes (paper, section 3.2).

    Long queries attend to the long keys around them and to all global keys
    (l2l and l2g) under one softmax. Global queries attend to all global and all
    long keys (g2g and g2l) under another softmax.

    The projections are attributes: `long_query_projection`,
    `global_query_projection`, `l2l_key_projection`, `l2l_value_projection`
    (likewise `l2g_*` and `g2g_*` for the global input, `g2l_*` for the long
    input), `long_output_projection` and `global_output_projection`. A shared
    projection is one layer with several names. `long_qkv_attention` and
    `global_qkv_attention` hold the label tables, which are never shared.

    Args:
        long_hidden_size: size of the long input and output.
        global_hidden_size: size of the global input and output.
        local_radius: number of positions that a long query sees on each side.
        long_total_att_size: size of all heads of the long queries together,
            `long_hidden_size` by default.
        global_total_att_size: size of all heads of the global queries together,
            `global_hidden_size` by default.
        relative_vocab_size: number of labels; None for no labels. l2l and l2g
            share one table of labels, and so do g2g and g2l.
        initializer: initializer of the kernels; None for Keras's default.
        share_kv_projections: whether l2l and l2g share a key and a value
            projection, and g2g and g2l another pair.
        share_qkv_projections: whether all directions share one query, one key
            and one value projection; overrides `share_kv_projections`.
        share_att_output_projection: whether both inputs share an output
            projection.
        use_one_hot_lookup: see `QkvRelativeAttention`.

    Raises:
        ValueError: a total size is not a multiple of `num_heads`, or a
            projection is shared between inputs of different sizes.
    """

    _initializers = ("initializer",)

    def __init__(
        self,
        long_hidden_size: int,
        global_hidden_size: int,
        num_heads: int,
        local_radius: int,
        long_total_att_size: int | None = None,
        global_total_att_size: int | None = None,
        relative_vocab_size: int | None = None,
        att_dropout_prob: float = 0.0,
        initializer=None,
        share_kv_projections: bool = False,
        share_qkv_projections: bool = False,
        share_att_output_projection: bool = False,
        use_one_hot_lookup: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(
            name=keras_compat.default_name(name, "fused_global_local_att"),
            **kwargs,
        )
        self.long_hidden_size = long_hidden_size
        self.global_hidden_size = global_hidden_size
        self.num_heads = num_heads
        self.local_radius = local_radius
        self.long_total_att_size = long_total_att_size or long_hidden_size
        self.global_total_att_size = global_total_att_size or global_hidden_size
        self.relative_vocab_size = relative_vocab_size
        self.att_dropout_prob = att_dropout_prob
        self.initializer = tf.keras.initializers.get(initializer)
        self.share_kv_projections = share_kv_projections
        self.share_qkv_projections = share_qkv_projections
        self.share_att_output_projection = share_att_output_projection
        self.use_one_hot_lookup = use_one_hot_lookup
        self._check_sizes()
        self._make_query_key_value_projections()

        self.long_qkv_attention = local_attention.QkvRelativeLocalAttention(
            local_radius,
            relative_vocab_size=relative_vocab_size,
            att_dropout_prob=att_dropout_prob,
            use_one_hot_lookup=use_one_hot_lookup,
            dtype=self.dtype_policy,
            name="long_qkv_attention",
        )
        self.global_qkv_attention = relative_attention.QkvRelativeAttention(
            relative_vocab_size=relative_vocab_size,
            att_dropout_prob=att_dropout_prob,
            use_one_hot_lookup=use_one_hot_lookup,
            dtype=self.dtype_policy,
            name="global_qkv_attention",
        )
        self.long_output_projection = self._make_output_projection(
            "long_output_projection", long_hidden_size
        )
        self.global_output_projection = (
            self.long_output_projection
            if share_att_output_projection
            else self._make_output_projection(
                "global_output_projection", global_hidden_size
            )
        )

    def _check_sizes(self):
        relative_attention.check_divisible(
            self.num_heads,
            long_total_att_size=self.long_total_att_size,
            global_total_att_size=self.global_total_att_size,
        )
        shares_all = {
            "share_qkv_projections": self.share_qkv_projections,
            "share_att_output_projection": self.share_att_output_projection,
        }
        for option, is_on in shares_all.items():
            if is_on and self.long_total_att_size != self.global_total_att_size:
                raise ValueError(
                    f"{option} needs equal attention sizes, but "
                    f"long_total_att_size is {self.long_total_att_size} and "
                    f"global_total_att_size {self.global_total_att_size}. Make "
                    f"them equal, or set {option}=False."
                )
        for option, is_on in (
            shares_all | {"share_kv_projections": self.share_kv_projections}
        ).items():
            if is_on and self.long_hidden_size != self.global_hidden_size:
                raise ValueError(
                    f"{option} needs equal hidden sizes, but long_hidden_size "
                    f"is {self.long_hidden_size} and global_hidden_size "
                    f"{self.global_hidden_size}. Make them equal, or set "
                    f"{option}=False."
                )

    def _make_query_key_value_projections(self):
        def make(name, total_size, shared=None):
            if shared is not None:
                return shared
            return self._make_head_projection(name, total_size)

        long_size = self.long_total_att_size
        global_size = self.global_total_att_size
        shares_all = self.share_qkv_projections
        # Whether l2g shares projections with l2l, and g2l with g2g.
        shares_pairs = self.share_kv_projections or shares_all

        self.long_query_projection = make("long_query_projection", long_size)
        self.global_query_projection = make(
            "global_query_projection",
            global_size,
            self.long_query_projection if shares_all else None,
        )
        self.l2l_key_projection = make("l2l_key_projection", long_size)
        self.l2l_value_projection = make("l2l_value_projection", long_size)
        self.l2g_key_projection = make(
            "l2g_key_projection",
            long_size,
            self.l2l_key_projection if shares_pairs else None,
        )
        self.l2g_value_projection = make(
            "l2g_value_projection",
            long_size,
            self.l2l_value_projection if shares_pairs else None,
        )
        self.g2g_key_projection = make(
            "g2g_key_projection",
            global_size,
            self.l2l_key_projection if shares_all else None,
        )
        self.g2g_value_projection = make(
            "g2g_value_projection",
            global_size,
            self.l2l_value_projection if shares_all else None,
        )
        self.g2l_key_projection = make(
            "g2l_key_projection",
            global_size,
            self.g2g_key_projection if shares_pairs else None,
        )
        self.g2l_value_projection = make(
            "g2l_value_projection",
            global_size,
            self.g2g_value_projection if shares_pairs else None,
        )

    def build(self, input_shape):
        """Builds all sublayers; the constructor determines their sizes."""
        for layer in (
            self.long_query_projection,
            self.l2l_key_projection,
            self.l2l_value_projection,
            self.g2l_key_projection,
            self.g2l_value_projection,
        ):
            keras_compat.build_once(layer, (None, None, self.long_hidden_size))
        for layer in (
            self.global_query_projection,
            self.g2g_key_projection,
            self.g2g_value_projection,
            self.l2g_key_projection,
            self.l2g_value_projection,
        ):
            keras_compat.build_once(
                layer, (None, None, self.global_hidden_size)
            )
        for layer, total_size in (
            (self.long_qkv_attention, self.long_total_att_size),
            (self.global_qkv_attention, self.global_total_att_size),
        ):
            size_per_head = total_size // self.num_heads
            keras_compat.build_once(
                layer, (None, None, self.num_heads, size_per_head)
            )
        for layer, total_size in (
            (self.long_output_projection, self.long_total_att_size),
            (self.global_output_projection, self.global_total_att_size),
        ):
            keras_compat.build_once(layer, (None, None, total_size))
        super().build(input_shape)

    def call(
        self,
        long_input,
        global_input,
        l2l_att_mask=None,
        g2g_att_mask=None,
        l2g_att_mask=None,
        g2l_att_mask=None,
        l2l_relative_att_ids=None,
        g2g_relative_att_ids=None,
        l2g_relative_att_ids=None,
        g2l_relative_att_ids=None,
        att_implementation="auto",
        return_attention_scores=False,
        long_query_positions=None,
        global_query_positions=None,
        training=None,
    ):
        """Attends in all four directions.

        The inputs are `<float>[batch, long, long_hidden_size]` and
        `<float>[batch, global, global_hidden_size]`. Masks are `<int32 or
        bool>`, 1 where attending is allowed; None allows all pairs.
        `*_relative_att_ids` are `<int32>` labels, or None. For their shapes,
        and for objects that describe masks and labels, see
        `attention.long_attention` and `attention.global_attention`. For
        `att_implementation`, see `QkvRelativeLocalAttention`.

        Returns:
            `[long_output, global_output]`, shaped as the inputs. With
            `return_attention_scores`, a pair of this list and a dict of
            `"l2l"`, `"l2g"`, `"g2g"` and `"g2l"` for the given query positions
            (see `attention.long_scores` and `attention.global_scores`).
        """
        long_queries = self.long_query_projection(long_input)
        global_queries = self.global_query_projection(global_input)
        keys = (
            attention.Keys(
                self.l2l_key_projection(long_input),
                self.l2l_value_projection(long_input),
                l2l_att_mask,
                l2l_relative_att_ids,
                "l2l_",
            ),
            attention.Keys(
                self.l2g_key_projection(global_input),
                self.l2g_value_projection(global_input),
                l2g_att_mask,
                l2g_relative_att_ids,
                "l2g_",
            ),
        )
        layer = self.long_qkv_attention.qkv_relative_attention
        long_call = (
            long_queries,
            *keys,
            self.local_radius,
            *_weights_of(layer, long_queries, keys, training),
        )
        # [batch, long, heads, size]
        long_output = attention.long_attention(*long_call, att_implementation)
        # The long tokens are projected for the global queries only after the
        # long output exists, so that fewer tensors are alive at a time.
        with tf.control_dependencies([long_output]):
            long_input = tf.identity(long_input)
        keys = (
            attention.Keys(
                self.g2g_key_projection(global_input),
                self.g2g_value_projection(global_input),
                g2g_att_mask,
                g2g_relative_att_ids,
                "g2g_",
            ),
            attention.Keys(
                self.g2l_key_projection(long_input),
                self.g2l_value_projection(long_input),
                g2l_att_mask,
                g2l_relative_att_ids,
                "g2l_",
            ),
        )
        layer = self.global_qkv_attention
        global_call = (
            global_queries,
            *keys,
            *_weights_of(layer, global_queries, keys, training),
        )
        # [batch, global, heads, size]
        global_output = attention.global_attention(
            *global_call, att_implementation
        )
        outputs = [
            # [batch, long, long_hidden_size]
            dense_rows.apply(
                self.long_output_projection, long_output, row_rank=2
            ),
            # [batch, global, global_hidden_size]
            dense_rows.apply(
                self.global_output_projection, global_output, row_rank=2
            ),
        ]
        # `[:-1]` drops the last argument, the dropout.
        long_scores = functools.partial(attention.long_scores, *long_call[:-1])
        global_scores = functools.partial(
            attention.global_scores, *global_call[:-1]
        )
        # Another thread may reset the attribute.
        observer = self.score_observer
        if observer is not None:
            observer(long_scores, global_scores)
        if not return_attention_scores:
            return outputs
        scores = (
            *long_scores(long_query_positions),
            *global_scores(global_query_positions),
        )
        return outputs, dict(zip(_DIRECTIONS, scores, strict=True))

    def compute_output_shape(
        self, long_input_shape=None, global_input_shape=None, input_shape=None
    ):
        """Returns the shapes of the inputs."""
        keras_compat.check_is_known(self, global_input_shape, input_shape)
        return [tuple(long_input_shape), tuple(global_input_shape)]


def _weights_of(layer, queries, keys, training):
    """Returns the label table and the dropout of a `QkvRelativeAttention`."""
    table = layer.label_table(queries.dtype, *(x.labels for x in keys))
    return table, layer.att_dropout.of_probabilities(training)
