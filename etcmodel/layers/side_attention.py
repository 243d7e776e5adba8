"""Attention of a sequence to a side sequence, such as a memory."""

import tensorflow as tf

from etcmodel.layers import dense_rows
from etcmodel.layers import dropout
from etcmodel.layers import embedding
from etcmodel.layers import initializers
from etcmodel.layers import keras_compat
from etcmodel.layers import normalization
from etcmodel.layers import relative_attention
from etcmodel.ops import attention
from etcmodel.ops import shapes
from etcmodel.ops.attention import memory_attention
from etcmodel.ops.attention import softmax

POS_EMBED_MODES = (
    None,
    "absolute",
    "absolute_add_ln",
    "simple_relative",
    "query_dot_relative",
)


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class SideAttention(relative_attention.MultiHeadLayer):
    """Attention to side vectors (ReadTwice paper, section 2.1).

    The main input is a batch of segments. The side input is a memory: vectors
    that summarize pieces of text. Segments and memories have positions (the
    number of their segment in the document), which can be used in four ways.
    Let `P` be the table of position embeddings, `s` a segment's position, `m` a
    memory's position, `n = pos_embed_size` and
    `rel = clip(s - m, -n, n) + n`:

    | `pos_embed_mode` | rows of P | score of a pair, times `sqrt(size)` |
    | --- | --- | --- |
    | None | | `q.k` |
    | `"absolute"` | n | `q.k + P[s].P[m]` |
    | `"absolute_add_ln"` | 2n+1 | `norm(q + P[s]).norm(k + P[m])` |
    | `"simple_relative"` | 2n+1 | `q.k + P[rel]`, one number per head |
    | `"query_dot_relative"` | 2n+1 | `q.k + q.P[rel]` |

    `"simple_relative"` is the paper's `r` in equation 1. Positions beyond the
    table are replaced by the nearest one in it.

    `enable_default_side_input` adds the paper's no-op memory: a learned key
    without a position, which is never masked. Its value is zeros. A token whose
    keys are all masked gets the bias of the output projection, or zeros where
    `att_value_mask` is 0.

    There are `heads * batch * main * side` scores. Outside of training, unless
    they are returned, only the scores of a few examples exist at a time.

    The projections are attributes: `query_projection`, `key_projection`,
    `value_projection` and `output_projection`.

    Args:
        hidden_size: width of both inputs and of the output.
        num_heads: number of heads. 0 for one head without projections: the
            queries are the main input, keys and values are the side input.
        initializer: initializer of the kernels and of the default side input;
            None for Keras's default.
        top_k_attention: number of side vectors that a token attends to in each
            head (see `memory_attention.attend`); None for all.
        use_one_hot_embeddings: look positions up by products with one-hot
            vectors instead of gathers. The results are the same.

    Raises:
        ValueError: `num_heads` is negative, `hidden_size` is not a multiple of
            it, `top_k_attention` is not a positive int, `pos_embed_mode` is
            unknown, or an argument that the mode needs is missing.
    """

    _initializers = ("initializer",)

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        att_dropout_prob: float = 0.0,
        enable_default_side_input: bool = False,
        initializer=None,
        top_k_attention: int | None = None,
        pos_embed_mode: str | None = None,
        pos_embed_size: int | None = None,
        use_one_hot_embeddings: bool | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.att_dropout_prob = att_dropout_prob
        self.enable_default_side_input = enable_default_side_input
        self.initializer = tf.keras.initializers.get(initializer)
        self.top_k_attention = top_k_attention
        self.pos_embed_mode = pos_embed_mode
        self.pos_embed_size = pos_embed_size
        self.use_one_hot_embeddings = use_one_hot_embeddings
        self._check_arguments()
        # 0 heads mean one head without projections.
        self._effective_heads = max(num_heads, 1)
        self._size_per_head = hidden_size // self._effective_heads

        self.query_projection = None
        self.key_projection = None
        self.value_projection = None
        self.output_projection = None
        if num_heads:
            (
                self.query_projection,
                self.key_projection,
                self.value_projection,
            ) = (
                self._make_head_projection(f"{x}_projection", hidden_size)
                for x in ("query", "key", "value")
            )
            self.output_projection = self._make_output_projection(
                "output_projection", hidden_size
            )
        self.att_dropout = dropout.RecomputingDropout(
            att_dropout_prob, dtype=self.dtype_policy, name="att_dropout"
        )
        self.block_position_emb_lookup = None
        self.block_position_emb_layer_norm = None
        if pos_embed_mode is not None:
            self._make_position_layers()
        self.default_side_input = None

    def _check_arguments(self):
        if self.num_heads < 0:
            raise ValueError(
                f"num_heads must be at least 0, but is {self.num_heads}."
            )
        if self.num_heads:
            relative_attention.check_divisible(
                self.num_heads, hidden_size=self.hidden_size
            )
        k = self.top_k_attention
        if k is not None and (
            isinstance(k, bool) or not isinstance(k, int) or k < 1
        ):
            raise ValueError(
                "top_k_attention must be None, for all side vectors, or an int "
                f"of at least 1, but is {k!r}."
            )
        mode = self.pos_embed_mode
        if mode not in POS_EMBED_MODES:
            raise ValueError(
                f"Unknown pos_embed_mode {mode!r}. Expected one of "
                f"{', '.join(map(repr, POS_EMBED_MODES))}."
            )
        if mode is None:
            return
        for name, value in (
            ("pos_embed_size", self.pos_embed_size),
            ("use_one_hot_embeddings", self.use_one_hot_embeddings),
        ):
            if value is None:
                raise ValueError(
                    f"pos_embed_mode {mode!r} needs {name}, but got None."
                )
        relative_attention.check_at_least_1(pos_embed_size=self.pos_embed_size)

    def _make_position_layers(self):
        self.block_position_emb_lookup = embedding.EmbeddingLookup(
            vocab_size=(
                self.pos_embed_size
                if self.pos_embed_mode == "absolute"
                else 2 * self.pos_embed_size + 1
            ),
            embedding_size=(
                self._effective_heads
                if self.pos_embed_mode == "simple_relative"
                else self.hidden_size
            ),
            initializer_range=0.02,
            use_one_hot_lookup=self.use_one_hot_embeddings,
            dtype=self.dtype_policy,
            name="block_position_emb_lookup",
        )
        if self.pos_embed_mode == "absolute_add_ln":
            self.block_position_emb_layer_norm = (
                normalization.LayerNormalization(
                    dtype=self.dtype_policy,
                    name="block_position_emb_layer_norm",
                )
            )

    def build(self, input_shape):
        """Builds all sublayers; the constructor determines their sizes."""
        keras_compat.build_all(
            (None, None, self.hidden_size),
            self.query_projection,
            self.key_projection,
            self.value_projection,
            self.output_projection,
        )
        keras_compat.build_all((None,), self.block_position_emb_lookup)
        keras_compat.build_all(
            (None, None, self._effective_heads, self._size_per_head),
            self.block_position_emb_layer_norm,
        )
        if self.enable_default_side_input:
            self.default_side_input = self.add_weight(
                name="default_side_input",
                shape=(self.hidden_size,),
                initializer=initializers.clone_kernel(self.initializer),
                trainable=True,
            )
        super().build(input_shape)

    def call(
        self,
        main_input,
        side_input,
        att_mask=None,
        main_pos=None,
        side_pos=None,
        att_value_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        """Attends from `<float>[batch, main, hidden_size]`.

        Args:
            main_input: the queries.
            side_input: `<float>[batch, side, hidden_size]`, or `<float>[side,
                hidden_size]` if all examples share it. It may have no rows.
            att_mask: `<int32 or bool>[batch, main, side]` or `[batch, side]`, 1
                where attending is allowed; None allows all pairs.
            main_pos: `<int>[batch]`, the segments' positions. Positions are
                used only with a `pos_embed_mode`.
            side_pos: `<int>[side]` or `<int>[batch, side]`, the memories'
                positions.
            att_value_mask: `<any>[batch, main]`, 0 to set outputs to zeros.
            training: whether dropout is applied.
            return_attention_scores: whether to return the scores, too.

        Returns:
            A tensor shaped as `main_input`. With `return_attention_scores`, a
            pair of it and the probabilities before dropout, `<float>[batch,
            heads, main, side]`. A row sums to 1 minus the probability of the
            no-op memory. It is 0 if all keys are masked, or where
            `att_value_mask` is 0.

        Raises:
            ValueError: an input has the wrong rank, a mask has the wrong number
                of columns, or positions are missing.
        """
        shapes.assert_rank(main_input, 3, "main_input")
        shapes.assert_rank(side_input, [2, 3], "side_input")
        side_input = tf.cast(side_input, main_input.dtype)
        if self.pos_embed_mode is None:
            main_pos = side_pos = None
        else:
            main_pos, side_pos = self._check_positions(main_pos, side_pos)
        # [..., side, heads, size]
        keys = self._project(self.key_projection, side_input)
        if self.pos_embed_mode == "absolute_add_ln":
            keys = self.block_position_emb_layer_norm(
                keys + self._embed(side_pos)
            )
        # [..., side, heads, size]
        values = self._project(self.value_projection, side_input)
        examples = {
            "tokens": main_input,
            "mask": memory_attention.as_mask(att_mask, "att_mask"),
            "main_pos": main_pos,
        }
        shared = {}
        for name, x, rank in (
            ("keys", keys, 4),
            ("values", values, 4),
            ("side_pos", side_pos, 2),
        ):
            has_own = x is not None and x.shape.rank == rank
            (examples if has_own else shared)[name] = x

        def attend(**examples):
            return self._attend(**examples, **shared, training=training)

        self._observe_examples(
            lambda kept, **example: [_kept(attend(**example)[1], kept)],
            {"kept": att_value_mask, **examples},
        )
        if return_attention_scores or keras_compat.is_training(training):
            output, scores = attend(**examples)
        else:
            _, main_len, _ = shapes.get_shape_list(main_input)
            side_len, heads, _ = shapes.get_shape_list(keys)[-3:]
            output = memory_attention.in_chunks(
                lambda **examples: attend(**examples)[0],
                examples,
                heads * main_len * side_len,
            )
        output = _kept(output, att_value_mask)
        if return_attention_scores:
            scores = memory_attention.batch_first(_kept(scores, att_value_mask))
            return output, scores
        return output

    def _attend(
        self,
        tokens,
        mask,
        main_pos,
        keys,
        values,
        side_pos,
        training,
    ):
        """Returns the output and `<float>[heads, batch, main, side]`."""
        # [batch, main, heads, size]
        queries = self._project(self.query_projection, tokens)
        if self.pos_embed_mode == "absolute_add_ln":
            queries = self.block_position_emb_layer_norm(
                queries + self._embed(main_pos[:, tf.newaxis])
            )
        default_key = None
        if self.default_side_input is not None:
            # [heads, size]
            default_key = self._split_heads(
                tf.cast(self.default_side_input, queries.dtype)
            )
        # [batch, main, hidden_size]
        output, (scores,) = memory_attention.attend(
            queries,
            [attention.Keys(keys, values, mask)],
            self.att_dropout.of_probabilities(training),
            self._position_scores(queries, main_pos, side_pos),
            default_key=default_key,
            top_k=self.top_k_attention,
        )
        if self.output_projection is not None:
            output = dense_rows.apply(self.output_projection, output)
        return output, scores

    def _check_positions(self, main_pos, side_pos):
        for name, positions in (("main_pos", main_pos), ("side_pos", side_pos)):
            if positions is None:
                raise ValueError(
                    f"{self.name}: pos_embed_mode {self.pos_embed_mode!r} "
                    f"needs {name}, but got None."
                )
        shapes.assert_rank(main_pos, 1, "main_pos")
        shapes.assert_rank(side_pos, [1, 2], "side_pos")
        return tf.cast(main_pos, tf.int32), tf.cast(side_pos, tf.int32)

    def _split_heads(self, tensor):
        """Splits `<float>[..., hidden_size]` into `[..., heads, size]`."""
        shape = shapes.get_shape_list(tensor)[:-1]
        return tf.reshape(
            tensor, shape + [self._effective_heads, self._size_per_head]
        )

    def _project(self, projection, tensor):
        if projection is None:
            return self._split_heads(tensor)
        return projection(tensor)

    def _embed(self, positions):
        """Embeds absolute positions, `<float>[..., heads, size]`."""
        last = self.block_position_emb_lookup.vocab_size - 1
        return self._split_heads(
            self.block_position_emb_lookup(tf.clip_by_value(positions, 0, last))
        )

    def _position_scores(self, queries, main_pos, side_pos):
        """Returns scores of positions, `[heads, batch, main or 1, side]`."""
        mode = self.pos_embed_mode
        if mode in (None, "absolute_add_ln"):
            return None
        if mode == "absolute":
            return memory_attention.attention_scores(
                # [heads, batch, 1, size]
                softmax.scaled(
                    memory_attention.heads_first(
                        self._embed(main_pos[:, tf.newaxis])
                    )
                ),
                # [heads, side, size] or [heads, batch, side, size]
                memory_attention.heads_first(self._embed(side_pos)),
            )
        ids = relative_positions(main_pos, side_pos, self.pos_embed_size)
        if mode == "simple_relative":
            # [batch, 1, side, heads]
            biases = self.block_position_emb_lookup(ids)[:, tf.newaxis]
            # [heads, batch, 1, side]
            biases = tf.transpose(biases, [3, 0, 1, 2])
            return tf.cast(
                biases * self._size_per_head**-0.5,
                softmax.score_dtype(queries.dtype),
            )
        # [2 * pos_embed_size + 1, heads, size]
        table = self._split_heads(
            tf.cast(
                tf.convert_to_tensor(
                    self.block_position_emb_lookup.embedding_table
                ),
                queries.dtype,
            )
        )
        # [heads, batch, main, 2 * pos_embed_size + 1]
        columns = memory_attention.attention_scores(
            softmax.scaled(memory_attention.heads_first(queries)),
            memory_attention.heads_first(table),
        )
        return choose_columns(columns, ids, self.use_one_hot_embeddings)

    def compute_output_shape(self, input_shape):
        """Returns the shape of the first input, with the hidden size."""
        return (*input_shape[:-1], self.hidden_size)


def relative_positions(main_pos, side_pos, max_distance: int) -> tf.Tensor:
    """Computes ids of the clipped distances between segments and memories.

    The ids are `clip(main_pos - side_pos, -n, n) + n`, `<int32>[batch, side]`,
    with `n = max_distance`. Segments at positions 1 and 9, memories at
    positions 2 and 3 and `max_distance=2` give `[[1, 0], [4, 4]]`.
    """
    # [batch, side]
    distance = main_pos[:, tf.newaxis] - side_pos
    return (
        tf.clip_by_value(distance, -max_distance, max_distance) + max_distance
    )


def choose_columns(columns, ids, use_one_hot_lookup: bool) -> tf.Tensor:
    """Gathers one column for each pair of an example and a memory.

    With one head and one example of two tokens, the columns `[[[[5, 6, 7], [8,
    9, 0]]]]` and the ids `[[2, 0]]` give `[[[[7, 5], [0, 8]]]]`,
    `<float>[heads, batch, main, side]`.
    """
    if use_one_hot_lookup:
        # [batch, side, columns]
        one_hot = tf.one_hot(ids, columns.shape[-1], dtype=columns.dtype)
        return tf.matmul(columns, one_hot[tf.newaxis], transpose_b=True)
    heads = columns.shape[0]
    # [heads, batch, side]
    ids = tf.tile(ids[tf.newaxis], [heads, 1, 1])
    return tf.gather(columns, ids, axis=3, batch_dims=2)


def _kept(tensor, mask):
    """Sets rows of `<float>[..., batch, main, x]` to 0 where masked."""
    if mask is None:
        return tensor
    # [batch, main, 1]
    keep = tf.cast(mask, tf.bool)[..., tf.newaxis]
    return tf.where(keep, tensor, tf.zeros([], tensor.dtype))
