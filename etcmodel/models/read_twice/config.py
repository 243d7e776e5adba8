"""Configuration of ReadTwice: the two reads and the memory between them."""

import dataclasses

from etcmodel.layers.side_attention import POS_EMBED_MODES
from etcmodel.models import json_config

SECOND_READ_TYPES = (
    "from_scratch",
    "new_layers",
    "cross_attend_once",
    "new_layers_cross_attention",
)
SUMMARY_MODES = ("cls", "text_block", "entity")
SUMMARY_POSTPROCESSING_TYPES = ("none", "linear", "pos", "transformer")

# The paper's second read: one attention to the memory, without projections
# (equation 1), and two more layers.
_PAPER = dict(
    use_sparse_memory_attention=True,
    cross_attention_pos_emb_mode="simple_relative",
    cross_attention_pos_emb_size=10,
    second_read_type="cross_attend_once",
    second_read_num_new_layers=2,
    second_read_num_cross_attention_heads=0,
    second_read_enable_default_side_input=True,
    summary_mode="entity",
)
_DENSE = dict(_PAPER, use_sparse_memory_attention=False)
_TINY = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=128,
    second_read_num_new_layers=1,
)
_PRESETS = {
    # The paper's headline model, ReadTwice (E).
    "base": _PAPER,
    # Variants: one memory for each segment, one for every 32 tokens.
    "base_cls": dict(_DENSE, summary_mode="cls"),
    "base_sts": dict(
        _DENSE, summary_mode="text_block", text_block_extract_every_x=32
    ),
    # For experiments on a laptop, and for tests.
    "tiny": _PAPER | _TINY,
}


@dataclasses.dataclass
class ReadTwiceConfig(json_config.JsonConfig):
    """Configuration of a `ReadTwiceModel`.

    The names are those of the original code's JSON files, except that
    `cross_attention_pos_emb_size` and `summary_padding_token_id` are new. (The
    original code ignores `grad_checkpointing_period`.) The presets are
    "base" (the paper's model with memories of entity mentions), "base_cls" and
    "base_sts" (one memory for each segment, or for every 32 tokens), and "tiny"
    for experiments and tests. Their `vocab_size` is RoBERTa's, 50,265.
    `EtcConfig` describes the attributes that are not described here.

    Attributes:
        use_sparse_memory_attention: whether only some tokens attend to
            memories: those of entity mentions, the first of each text block, or
            the first of the segment, by `summary_mode`. Otherwise all tokens
            do.
        max_seq_length: number of token positions in a segment.
        max_num_blocks_per_document: number of segment positions in a document.
        cross_attention_pos_emb_mode: how "cross_attend_once" uses segment
            positions, see `SideAttention`; None to ignore them.
        cross_attention_pos_emb_size: number of segment positions that
            "cross_attend_once" can tell apart, or the largest relative
            position; None for `max_num_blocks_per_document`.
        share_kv_projections: whether tokens and memories share the projections
            of keys and values where one softmax covers both.
        grad_checkpointing_period: see `TransformerWithSideInputLayers`.
        second_read_type: the layers of the second read. "from_scratch": the
            layers of the first read again, starting from the embeddings, with
            tokens and memories in one softmax. "new_layers": new layers on top
            of the first read, with tokens and memories in one softmax.
            "cross_attend_once": one attention to the memories on top of the
            first read, then new layers without memories.
            "new_layers_cross_attention": new layers, each with its own
            attention to the memories.
        second_read_num_new_layers: number of layers of the second read;
            required by all types except "from_scratch".
        second_read_num_cross_attention_heads: number of heads of the attention
            to memories, 0 for one head without projections; required by both
            cross-attention types.
        second_read_enable_default_side_input: whether that attention has a
            no-op memory, which tokens can attend to instead of real memories.
        summary_mode: the tokens that memories are made of. "cls": the first
            token of a segment. "text_block": the first and the last of each
            `text_block_extract_every_x` tokens. "entity": the first and the
            last token of each entity mention.
        summary_postprocessing_type: how gathered memories are processed.
            "none"; "linear": a dense layer with tanh; "pos": adds the segment's
            position and normalizes the sum; "transformer": as "pos", then
            layers in which memories attend to each other.
        summary_postprocessing_num_layers: number of the "transformer" layers.
        cross_attention_top_k: number of memories that a token attends to in
            "cross_attend_once": those with the highest scores (ReadTwice paper,
            Appendix C.4). None for all.
        text_block_extract_every_x: number of tokens of a text block.
        summary_padding_token_id: token id of padding.
    """

    _PRESETS = _PRESETS
    _MINIMA = {
        "grad_checkpointing_period": 0,
        "second_read_num_cross_attention_heads": 0,
        "summary_padding_token_id": 0,
    }
    RUN_FILE = "read_twice_config.json"
    _PRESET_VOCAB_SIZE = 50265

    vocab_size: int | None
    use_sparse_memory_attention: bool = False
    max_seq_length: int = 512
    max_num_blocks_per_document: int = 256
    cross_attention_pos_emb_mode: str | None = None
    cross_attention_pos_emb_size: int | None = None
    embedding_size: int | None = None
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    share_kv_projections: bool = False
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    grad_checkpointing_period: int = 0
    second_read_type: str = "from_scratch"
    second_read_num_new_layers: int | None = None
    second_read_num_cross_attention_heads: int | None = None
    second_read_enable_default_side_input: bool = False
    summary_mode: str = "cls"
    summary_postprocessing_type: str = "none"
    summary_postprocessing_num_layers: int | None = None
    cross_attention_top_k: int | None = None
    text_block_extract_every_x: int | None = None
    summary_padding_token_id: int = 0

    def validate(self):
        """Raises a ValueError for impossible or conflicting values."""
        self._check_fields()
        self._check_heads("num_attention_heads")
        self._check_choice("second_read_type", SECOND_READ_TYPES)
        self._check_choice("summary_mode", SUMMARY_MODES)
        self._check_choice(
            "summary_postprocessing_type", SUMMARY_POSTPROCESSING_TYPES
        )
        self._check_choice("cross_attention_pos_emb_mode", POS_EMBED_MODES)
        self._check_second_read()
        if self.summary_postprocessing_type == "transformer":
            self._check_given(
                "summary_postprocessing_num_layers",
                "summary_postprocessing_type",
            )
        if self.summary_mode == "text_block":
            self._check_given("text_block_extract_every_x", "summary_mode")

    def _check_second_read(self):
        if self.second_read_type != "from_scratch":
            self._check_given("second_read_num_new_layers", "second_read_type")
        # Memories have their own attention and softmax.
        if self.second_read_type in (
            "cross_attend_once",
            "new_layers_cross_attention",
        ):
            name = "second_read_num_cross_attention_heads"
            self._check_given(name, "second_read_type")
            if getattr(self, name):
                self._check_heads(name)
        elif self.second_read_enable_default_side_input:
            raise ValueError(
                "second_read_enable_default_side_input must be False: "
                f"second_read_type '{self.second_read_type}' has no no-op "
                "memory, as tokens and memories share a softmax."
            )
        if self.second_read_type != "cross_attend_once":
            for name in (
                "cross_attention_top_k",
                "cross_attention_pos_emb_mode",
            ):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} is {getattr(self, name)!r}, but only "
                        "second_read_type 'cross_attend_once' uses it, not "
                        f"'{self.second_read_type}'. Set it to None."
                    )
        if (
            self.cross_attention_pos_emb_mode is not None
            and self.summary_postprocessing_type in ("pos", "transformer")
        ):
            raise ValueError(
                "cross_attention_pos_emb_mode is "
                f"'{self.cross_attention_pos_emb_mode}', but "
                "summary_postprocessing_type "
                f"'{self.summary_postprocessing_type}' adds segment positions, "
                "too. Use only one of them."
            )

    def _check_given(self, name, because):
        if getattr(self, name) is None:
            raise ValueError(
                f"{because} '{getattr(self, because)}' needs {name}."
            )
