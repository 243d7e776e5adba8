"""Attention of a sequence to itself and to a side sequence, in one softmax."""

import tensorflow as tf

from etcmodel.layers import dense_rows
from etcmodel.layers import dropout
from etcmodel.layers import keras_compat
from etcmodel.layers import relative_attention
from etcmodel.ops import attention
from etcmodel.ops import shapes
from etcmodel.ops.attention import memory_attention


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class FusedSideAttention(relative_attention.MultiHeadLayer):
    """Self-attention in which side vectors compete with the tokens.

    Every token of the main input attends to all tokens of its example and to
    all rows of the side input under one softmax, without relative labels. With
    shared projections, the weights are those of BERT's self-attention. A token
    whose keys are all masked gets the bias of the output projection.

    The projections are attributes: `main_query_projection`,
    `main_key_projection`, `main_value_projection`, `side_key_projection` and
    `side_value_projection` (with `share_kv_projections`, the main input's
    projections), and `output_projection`.

    Raises:
        ValueError: `hidden_size` is not a multiple of `num_heads`.
    """

    _initializers = ("initializer",)

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        att_dropout_prob: float = 0.0,
        share_kv_projections: bool = True,
        initializer=None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        relative_attention.check_divisible(num_heads, hidden_size=hidden_size)
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.att_dropout_prob = att_dropout_prob
        self.share_kv_projections = share_kv_projections
        self.initializer = tf.keras.initializers.get(initializer)

        self.main_query_projection = self._make_head_projection(
            "main_query_projection", hidden_size
        )
        self.main_key_projection = self._make_head_projection(
            "main_key_projection", hidden_size
        )
        self.main_value_projection = self._make_head_projection(
            "main_value_projection", hidden_size
        )
        if share_kv_projections:
            self.side_key_projection = self.main_key_projection
            self.side_value_projection = self.main_value_projection
        else:
            self.side_key_projection = self._make_head_projection(
                "side_key_projection", hidden_size
            )
            self.side_value_projection = self._make_head_projection(
                "side_value_projection", hidden_size
            )
        self.att_dropout = dropout.RecomputingDropout(
            att_dropout_prob, dtype=self.dtype_policy, name="att_dropout"
        )
        self.output_projection = self._make_output_projection(
            "output_projection", hidden_size
        )

    def build(self, input_shape):
        """Builds all sublayers; the constructor determines their sizes."""
        for layer in (
            self.main_query_projection,
            self.main_key_projection,
            self.main_value_projection,
            self.side_key_projection,
            self.side_value_projection,
            self.output_projection,
        ):
            keras_compat.build_once(layer, (None, None, self.hidden_size))
        super().build(input_shape)

    def call(
        self,
        main_input,
        side_input=None,
        att_mask=None,
        training=None,
        side_att_mask=None,
        return_attention_scores=False,
    ):
        """Attends from `main_input`, `<float>[batch, main, hidden_size]`.

        `side_input` is `<float>[batch, side, hidden_size]`, or `<float>[side,
        hidden_size]` if all examples share it. None means no rows.

        The masks are `<int32 or bool>`, 1 where attending is allowed; None
        allows all pairs. `att_mask`, `[batch, main, main + side]`, covers the
        tokens and then the side input. It covers only the tokens if there is no
        side input, or if `side_att_mask`, `[batch, main, side]`, is given. A
        mask without the axis `main` applies to all tokens of an example.

        Returns:
            A tensor shaped as `main_input`. With `return_attention_scores`, a
            tuple of it and the probabilities before dropout, `<float>[batch,
            heads, main, main]` and `<float>[batch, heads, main, side]`. The
            second has no columns if there is no side input. Each token's
            probabilities sum to 1 over both tensors, or are 0 if all keys are
            masked.

        Raises:
            ValueError: an input or a mask has the wrong rank, or a mask has the
                wrong number of columns.
        """
        shapes.assert_rank(main_input, 3, "main_input")
        examples = {
            "main_input": main_input,
            "att_mask": memory_attention.as_mask(att_mask, "att_mask"),
        }
        shared = {}
        _, main_len, _ = shapes.get_shape_list(main_input)
        keys_per_query = main_len
        if side_input is not None:
            shapes.assert_rank(side_input, [2, 3], "side_input")
            side_input = tf.cast(side_input, main_input.dtype)
            examples["att_mask"], examples["side_att_mask"] = (
                memory_attention.split_masks(
                    att_mask, side_att_mask, main_input, side_input
                )
            )
            keys_per_query += shapes.get_shape_list(side_input)[-2]
            (shared if side_input.shape.rank == 2 else examples).update(
                side_keys=self.side_key_projection(side_input),
                side_values=self.side_value_projection(side_input),
            )

        def attend(**examples):
            return self._attend(**examples, **shared, training=training)

        self._observe_examples(lambda **example: attend(**example)[1], examples)
        if return_attention_scores:
            output, scores = attend(**examples)
            main, *side = map(memory_attention.batch_first, scores)
            # [batch, heads, main, 0] for no side input: Keras 3 rejects None.
            return output, (main, side[0] if side else main[..., :0])
        if keras_compat.is_training(training):
            return attend(**examples)[0]
        return memory_attention.in_chunks(
            lambda **examples: attend(**examples)[0],
            examples,
            self.num_heads * main_len * keys_per_query,
        )

    def _attend(
        self,
        main_input,
        att_mask,
        side_att_mask=None,
        side_keys=None,
        side_values=None,
        training=None,
    ):
        """Returns the output and `<float>[heads, batch, main, to]`."""
        pieces = [
            # [batch, main, heads, size]
            attention.Keys(
                self.main_key_projection(main_input),
                self.main_value_projection(main_input),
                att_mask,
            )
        ]
        if side_keys is not None:
            pieces.append(
                attention.Keys(
                    side_keys, side_values, side_att_mask, name="side_"
                )
            )
        output, scores = memory_attention.attend(
            self.main_query_projection(main_input),
            pieces,
            self.att_dropout.of_probabilities(training),
        )
        output = dense_rows.apply(self.output_projection, output)
        return output, scores

    def compute_output_shape(self, input_shape):
        """Returns the shape of the first input, with the hidden size."""
        return (*input_shape[:-1], self.hidden_size)
