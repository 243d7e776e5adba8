"""Configuration of the ETC encoder: sizes, sharing, masks."""

import dataclasses

from etcmodel.models import json_config

# Numbers of the relative ids, with V = 2 * max_distance + 1:
# 0 to V - 1: distances.
# V: between a long token and a global token that does not own it.
# V + 1: between a long token and the global token that owns it.
# V + 2: between global tokens of different contexts.
# V + 3 and up: labels that a layout gives to its links.
NUM_OTHER_RELATIVE_IDS = 3
ABSOLUTE_POSITIONS = ("sequence", "paragraph")

_UNSHARED = dict(share_qkv_projections=False)
_PRESETS = {
    # The paper's base model, 166 M parameters (Table 8).
    "base": _UNSHARED,
    # The base model with all parameters shared, 109 M parameters (Table 8).
    "base_shared": dict(
        share_qkv_projections=True, share_att_output_projection=True
    ),
    # The paper's large model, 558 M parameters with RoBERTa's vocabulary.
    "large": dict(
        _UNSHARED,
        vocab_size=50265,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        local_radius=169,
        relative_pos_max_distance=24,
        relative_vocab_size=64,
    ),
    # For experiments on a laptop, and for tests.
    "small": dict(
        _UNSHARED,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        local_radius=16,
        relative_pos_max_distance=8,
        relative_vocab_size=32,
    ),
    "tiny": dict(
        _UNSHARED,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        local_radius=4,
        relative_pos_max_distance=4,
        relative_vocab_size=16,
    ),
}


@dataclasses.dataclass
class EtcConfig(json_config.JsonConfig):
    """Configuration of an `EtcModel`, with the original JSON files' names.

    The presets are "base" (the paper's base model), "base_shared" (base with
    all parameters shared between streams), "large", and "small" and "tiny" for
    experiments and tests. Their `vocab_size` is 30,522, the size of BERT's
    uncased vocabulary; "large" uses the size of RoBERTa's.

    Attributes:
        vocab_size: number of token ids, shared by long and global tokens.
        segment_vocab_size: number of token types.
        embedding_size: width of the token table; None for `hidden_size`. Any
            other width is projected to `hidden_size` (as in ALBERT).
        hidden_size: width of the long and the global hidden states.
        local_radius: number of tokens to each side that a long token attends
            to.
        att_size_per_head: size of each attention head; None for `hidden_size`
            divided by `num_attention_heads`.
        relative_pos_max_distance: the largest distance with its own label;
            larger distances share its label. 0 for no labels.
        relative_vocab_size: number of relative labels, at least
            `2 * relative_pos_max_distance + 4`, and one more for each label of
            a layout's links; None for no labels.
        max_absolute_position_embeddings: number of absolute positions in the
            long and in the global input; 0 for none.
        absolute_positions: how a `StructuredEtcModel` numbers positions.
            "sequence": 0, 1, 2, ... over the whole input. "paragraph": each
            paragraph is numbered as if it followed the question directly, like
            BERT's pairs of question and paragraph. Inputs of any length then
            fit the table (see `feature_utils.make_paragraph_positions`). The
            global token of a question word takes the word's position; other
            global tokens take the position of [CLS]. Not in the original code.
        question_words_in_global: whether a `StructuredEtcModel` embeds the
            question's words as global tokens, too. All text then attends to the
            question in the first layer, as in BERT. Not in the original code.
        intermediate_size: inner size of the feed-forward layers.
        hidden_act: 'relu', 'gelu' (the tanh form), 'exact_gelu' (the erf form,
            which Hugging Face calls 'gelu'), 'tanh' or 'linear'.
        hidden_dropout_prob: dropout on embeddings and sublayer outputs.
        initializer_range: standard deviation of the initial weights.
        share_feed_forward_params: whether long and global tokens share the
            parameters of the feed-forward layers.
        share_kv_projections: whether the attention of a token to its own input
            and to the other input shares key and value projections.
        share_qkv_projections: whether all four parts of the attention (long to
            long, long to global, and so on) share query, key and value
            projections.
        share_att_output_projection: whether long and global tokens share the
            output projection of the attention.
        use_pre_activation_order: whether layers normalize their inputs rather
            than their outputs.
        use_hard_g2l_mask: whether a global token attends only to the long
            tokens that it owns; applies to `StructuredEtcModel`.
        use_hard_l2g_mask: whether a long token attends only to the global
            token that owns it; applies to `StructuredEtcModel`.
        grad_checkpointing_period: see `GlobalLocalTransformerLayers`.
    """

    _PRESETS = _PRESETS
    _MINIMA = {
        "relative_pos_max_distance": 0,
        "max_absolute_position_embeddings": 0,
        "grad_checkpointing_period": None,
    }
    RUN_FILE = "etc_config.json"

    vocab_size: int | None
    segment_vocab_size: int = 16
    embedding_size: int | None = None
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    local_radius: int = 84
    att_size_per_head: int | None = None
    relative_pos_max_distance: int = 12
    relative_vocab_size: int | None = 32
    max_absolute_position_embeddings: int = 0
    absolute_positions: str = "sequence"
    question_words_in_global: bool = False
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    share_feed_forward_params: bool = True
    share_kv_projections: bool = False
    share_qkv_projections: bool = True
    share_att_output_projection: bool = False
    use_pre_activation_order: bool = False
    use_hard_g2l_mask: bool = False
    use_hard_l2g_mask: bool = False
    grad_checkpointing_period: int = 0

    def validate(self):
        """Raises a ValueError for impossible or conflicting values."""
        self._check_fields()
        self._check_choice("absolute_positions", ABSOLUTE_POSITIONS)
        if (
            self.absolute_positions == "paragraph"
            and not self.max_absolute_position_embeddings
        ):
            raise ValueError(
                "absolute_positions is 'paragraph', but "
                "max_absolute_position_embeddings is 0; set it to the number "
                "of positions, such as BERT's 512."
            )
        if self.att_size_per_head is None:
            self._check_heads(
                "num_attention_heads",
                "change one of them, or set att_size_per_head",
            )
        self._check_relative_vocab_size()

    def _check_relative_vocab_size(self):
        max_distance = self.relative_pos_max_distance
        if self.relative_vocab_size is None:
            if max_distance:
                raise ValueError(
                    "relative_vocab_size is None, but "
                    f"relative_pos_max_distance is {max_distance}. Set "
                    "relative_vocab_size, or set the distance to 0 for no "
                    "labels."
                )
            return
        needed = 2 * max_distance + 1 + NUM_OTHER_RELATIVE_IDS
        if self.relative_vocab_size < needed:
            raise ValueError(
                f"relative_vocab_size ({self.relative_vocab_size}) is too "
                f"small for relative_pos_max_distance {max_distance}: "
                f"{2 * max_distance + 1} distances and "
                f"{NUM_OTHER_RELATIVE_IDS} other labels need at least {needed}."
            )
