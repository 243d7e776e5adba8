"""OpenKP: turns pages into EtcFeatures; defines the layout.

Long input (ETC paper, Appendix C): the words of all nodes of a page. Global
input: a token for each node. Visual features are added to the embeddings of a
node's global token and of its words.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from etcmodel.datasets import openkp
from etcmodel.feature_utils import layout
from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils.text import pages
from etcmodel.feature_utils.text import plain_documents
from etcmodel.feature_utils.text import texts
from etcmodel.pipeline import example_schema
from etcmodel.pipeline.preprocessor import Encoded
from etcmodel.pipeline.preprocessor import EtcPreprocessor
from etcmodel.pipeline.preprocessor import Labelled
from etcmodel.pipeline.preprocessor import count_cut
from etcmodel.pipeline.raw_inputs import RawInput
from etcmodel.tasks.documents import documents
from etcmodel.tasks.openkp import ngrams

_NUM_FEATURES = len(openkp.FEATURES)
# How a heading and a paragraph look in an ordinary page; see `openkp.FEATURES`.
_PAGE = [0, 800, 0, 900, 1, 0, 0, 0, 12, 0]
_HEADING = np.array([48, 600, 90, 36, 1, 0, 1, 0, 26, 0, *_PAGE], np.float32)
_PARAGRAPH = np.array([48, 600, 140, 18, 1, 0, 0, 1, 12, 0, *_PAGE], np.float32)
# The first node that does not fit and all later ones are left out. If it is the
# first node of the page, it is truncated instead.
_NODES = layout.Section(
    "nodes",
    token_types.SENTENCE,
    unit_global=documents.SENTENCE_TOKEN,
    breaks=False,
    cut="tail",
)
# The number of each token's word in the page, from 1.
_WORDS = layout.Value("words", "nodes", embed=())
LAYOUT = layout.LayoutSpec(
    [_NODES],
    values=[
        _WORDS,
        layout.Value(
            "visual",
            "nodes",
            "unit",
            "global",
            dtype=tf.float32,
            shape=(_NUM_FEATURES,),
            embed=("global", "long"),
        ),
    ],
)


class OpenKPPreprocessor(EtcPreprocessor):
    """Turns words, nodes and visual features into features."""

    INPUTS = {
        "words": RawInput(tf.string, ("records", "words")),
        "node_starts": RawInput(tf.int32, ("records", "nodes")),
        "node_ends": RawInput(tf.int32, ("records", "nodes")),
        "node_features": RawInput(
            tf.float32, ("records", "nodes", _NUM_FEATURES)
        ),
    }
    REQUEST = {
        "words": np.array([b"Jan Novak Cook in Krakow".split()], dtype=object),
        "node_starts": np.array([[0, 2]], np.int32),
        "node_ends": np.array([[2, 5]], np.int32),
        "node_features": np.stack([[_HEADING, _PARAGRAPH]]),
    }
    TEXT_REQUEST = {
        "text": np.array([b"# Jan Novak\nCook in Krakow"], dtype=object)
    }
    LAYOUT = LAYOUT
    SCHEMA = example_schema.etc_schema(
        LAYOUT.encoder_inputs,
        # See `ngrams.first_occurrences`; position i belongs to word i + 1.
        first_occurrences=example_schema.Field(
            "long", example_schema.CONTEXT, pad=0, size=ngrams.MAX_WORDS
        ),
        # The words that have tokens.
        visible_words=example_schema.Field(
            "list", example_schema.TEXT, tf.string
        ),
        # First word and number of words of each keyphrase.
        label_starts=example_schema.Field("list", example_schema.LABEL),
        label_sizes=example_schema.Field("list", example_schema.LABEL),
    )

    @staticmethod
    def of_text(text):
        """Turns titles and paragraphs into nodes that look ordinary."""
        titles, paragraphs = plain_documents.split_paragraphs(text)
        both = [titles.values, paragraphs.values]
        # [all nodes, (words)]
        words = tf.strings.split(tf.reshape(tf.stack(both, axis=1), [-1]))
        is_heading = tf.equal(tf.range(words.nrows()) % 2, 0)
        nodes = tf.RaggedTensor.from_row_splits(
            is_heading, 2 * paragraphs.row_splits, validate=False
        )
        has_words = words.row_lengths() > 0
        nodes = plain_documents.bounded(ragged_rows.keep(nodes, has_words))
        words = tf.ragged.boolean_mask(words, has_words)
        merged = ragged_rows.merge(nodes.with_values(words))
        # [all nodes]
        sizes = tf.cast(words.row_lengths(), tf.int32)
        ends = tf.cumsum(sizes)
        before = tf.gather(tf.pad(ends, [[1, 0]]), nodes.row_starts())
        ends -= tf.gather(before, ragged_rows.owners_in(nodes))
        looks = tf.where(nodes.values[:, tf.newaxis], _HEADING, _PARAGRAPH)
        return {
            "words": plain_documents.bounded(merged).to_tensor(),
            "node_starts": nodes.with_values(ends - sizes).to_tensor(-1),
            "node_ends": nodes.with_values(ends).to_tensor(-1),
            "node_features": nodes.with_values(looks).to_tensor(
                -1.0, shape=[None, None, _NUM_FEATURES]
            ),
        }, {}

    def layout_spec(self):
        """Returns the layout of nodes, or of blocks in a flat text."""
        if not self.config.fixed_block_size:
            return LAYOUT
        text = dataclasses.replace(_NODES, cut="keep")
        spec = layout.LayoutSpec([text], values=[_WORDS])
        return spec.with_blocks(
            self.config.fixed_block_size, documents.SENTENCE_TOKEN
        )

    def build(
        self,
        words: tf.Tensor,
        node_starts: tf.Tensor,
        node_ends: tf.Tensor,
        node_features: tf.Tensor,
    ) -> Encoded:
        """Builds the features of a batch.

        Args:
            words: `<string>[batch, words]`, padded with "".
            node_starts: first word of each node, in order, padded with -1,
                `<int>[batch, nodes]`.
            node_ends: the word after each node's last one, in the same shape.
            node_features: `<float>[batch, nodes, 20]`, see `openkp.FEATURES`.

        Returns:
            The features and, for labels, `word_nodes`: the node of every
            visible word, or 0 with fixed blocks. The output `is_refused` marks
            pages whose nodes overlap, are out of order, extend beyond the words
            or have padding between them, or that have a feature that is not
            finite. These pages get no nodes.

        Raises:
            tf.errors.InvalidArgumentError: at run time, if sizes of inputs do
            not match.
        """
        words = texts.without_padding(words)
        # [batch]
        is_refused = _has_wrong_nodes(
            words.row_lengths(), node_starts, node_ends, node_features
        )
        node_starts = tf.where(is_refused[:, tf.newaxis], -1, node_starts)
        is_node = node_starts >= 0
        # Padding starts after all words.
        starts = tf.where(is_node, node_starts, tf.int32.max)
        tokens = pages.tokenize_pages(
            self.tokenizer, words, None, starts, node_ends
        )
        visible = ngrams.number_words(tokens.words)
        if self.config.fixed_block_size:
            # All words are in one node without visual features.
            visible = visible._replace(nodes=tf.zeros_like(visible.nodes))
        # [batch, (visible words)]
        spoken = visible.words.with_values(
            tf.gather(
                words.values,
                tf.gather(
                    words.row_starts(), ragged_rows.owners_in(visible.words)
                )
                + tf.cast(visible.words.values, tf.int64),
            )
        )

        def of_nodes(values):
            """Removes padding: `[batch, (1), (nodes), ...]`."""
            return layout.one_group(
                ragged_rows.keep(values, tf.reshape(is_node, [-1]))
            )

        values = {"words": of_nodes(visible.numbers)}
        if not self.config.fixed_block_size:
            values["visual"] = of_nodes(
                tf.RaggedTensor.from_tensor(node_features)
            )
        made = self.engine({"nodes": of_nodes(tokens.token_ids)}, values=values)
        length = tf.shape(made.features["long_token_ids"])[1]
        first = ngrams.first_occurrences(spoken, visible.nodes)
        if "visual" not in values:
            shape = tf.shape(made.features["global_token_ids"])
            nothing = tf.zeros(tf.concat([shape, [_NUM_FEATURES]], axis=0))
            made = made._replace(values={**made.values, "visual": nothing})
        return Encoded(
            layout=made,
            context={
                # [batch, long, 5]
                "first_occurrences": first.to_tensor(
                    shape=tf.stack([-1, length, ngrams.MAX_WORDS])
                )
            },
            text={"visible_words": spoken},
            host={"word_nodes": visible.nodes, "is_refused": is_refused},
            outputs={"is_refused": is_refused},
        )

    @staticmethod
    def raw(record):
        """Returns the words and nodes of a record."""
        return {
            "words": record.words,
            "node_starts": [node.start for node in record.nodes],
            "node_ends": [node.end for node in record.nodes],
            "node_features": [node.features for node in record.nodes],
        }

    def labels(self, record, view, split):
        """Labels the first occurrence of each keyphrase.

        If there are several annotations, uses the one with the most phrases in
        the text.
        """
        if view.host["is_refused"]:
            raise record.error(
                "impossible nodes",
                problem=(
                    "nodes overlap, are not in order or not inside the words, "
                    "or a feature is not finite"
                ),
            )
        counts = {
            **count_cut(view, {"nodes": (None, "nodes")}),
            "pages_of_the_same_url": record.num_pages - 1,
        }
        if split == "predict" or not record.annotations:
            return Labelled([{}], {}, counts)
        words = [
            ngrams.normalize_word(x.decode("utf-8", "replace"))
            for x in view.text["visible_words"]
        ]
        nodes = view.host["word_nodes"].tolist()
        kept = int(view.features["words"].max(initial=0))
        phrases, found = max(
            (
                (x, ngrams.find_phrases(x, words[:kept], nodes))
                for x in record.annotations
            ),
            key=lambda pair: len(pair[1]),
        )
        counts |= {
            "keyphrases": len(phrases),
            "keyphrases_too_long": sum(
                len(x.split()) > ngrams.MAX_WORDS for x in phrases
            ),
            "keyphrases_found": len(found),
            "pages_without_a_keyphrase_in_the_text": int(not found),
        }
        labels = {
            "label_starts": [start for start, _ in found],
            "label_sizes": [size for _, size in found],
        }
        is_kept = split != "train" or found
        return Labelled([labels if is_kept else None], {}, counts)

    def describe(self, record):
        """Lists the names and values that `inspect` shows."""
        phrases = "; ".join(", ".join(x) for x in record.annotations or ())
        return [("keyphrases", phrases or "unknown")]

    def name_global(self, record, section, group, unit):
        """Names a node by font size and first words: `26 pt: Online Doctor`."""
        node = record.nodes[unit]
        text = " ".join(
            record.words[node.start : min(node.end, node.start + 3)]
        )
        size = node.features[openkp.FEATURES.index("font_size")]
        return f"{size:g} pt: {text}"


def _has_wrong_nodes(num_words, starts, ends, looks) -> tf.Tensor:
    """Marks pages with an impossible node, `<bool>[batch]`."""
    # [batch, nodes]: the end of the previous node; after padding the maximum,
    # which rejects any further node.
    before = tf.where(starts >= 0, ends, tf.int32.max)
    before = tf.pad(before, [[0, 0], [1, 0]])[:, :-1]
    most = tf.cast(num_words, tf.int32)[:, tf.newaxis]
    is_right = (before <= starts) & (starts <= ends) & (ends <= most)
    is_right &= tf.reduce_all(tf.math.is_finite(looks), axis=2)
    return tf.reduce_any(~is_right & tf.not_equal(starts, -1), axis=1)
