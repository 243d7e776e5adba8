r"""Finds entity mentions in plain text without a tagger; graph code.

A mention is a run of capitalized words: "Jan Novak", "Bank of England", "Jan's"
as "Jan", "H. americanus" as "H". It approximates a named entity recognizer:
names in lower case are missed, and the first word of a sentence counts as a
name unless it is a common one. Mentions with the same words, in any case,
belong to the same entity.
"""

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils.text.tf_text import tf_text
from etcmodel.feature_utils.text.tokenizers import sanitize
from etcmodel.tasks.read_twice import segments

_WORD = r"\p{Lu}[\p{L}\p{M}\p{N}]*(?:['’\-]\p{L}[\p{L}\p{M}\p{N}]*)*"
# Text allowed between two capitalized words of a name.
_BETWEEN = r"[ \t]+(?:(?:of|de|von|van|du|la|le)[ \t]+)?"
_SPAN = rf"{_WORD}(?:{_BETWEEN}{_WORD})*"
# Words that are capitalized at the beginning of a sentence without being names.
_COMMON = (
    "a about after again all also although am an and another any are as at "
    "be because been before both but by can could did do does during each "
    "either even every few first for from had has have he her here his how "
    "however i if in into is it its many may more most much must my neither no "
    "nor not now of on once one only or other our over several she should "
    "since so some such than that the their them then there these they this "
    "those though three through to two under unlike until up upon was we were "
    "what when where whether which while who whose why will with within "
    "without would yes yet you your"
).split()
_COMMON_WORD = "(?:" + "|".join(_COMMON) + ")"


def find_mentions(texts: tf.Tensor) -> segments.Mentions:
    """Finds runs of capitalized words in `<string>[texts]`.

    Offsets are bytes of the texts after `tokenizers.sanitize`. Example: "In
    1990 Jan Novak left the Bank of England. Jan Novak won." gives mentions from
    8 to 17, 27 to 42 and 44 to 53, the first and the last of the same entity.
    """
    texts = sanitize(texts)
    # [texts, (pieces)]: mentions and the text between them.
    pieces, begins, ends = tf_text.regex_split_with_offsets(
        texts, delim_regex_pattern=_SPAN, keep_delim_regex_pattern=_SPAN
    )
    names = pieces.values
    # Removes leading common words, as in "The Hague" or "In Brno". A span of
    # only common words is not a name.
    leading = rf"(?i)^(?:{_COMMON_WORD}[ \t]+)+"
    stripped = tf.strings.regex_replace(names, leading, "")
    is_name = tf.strings.regex_full_match(names, _SPAN)
    is_name &= ~tf.strings.regex_full_match(stripped, rf"(?i){_COMMON_WORD}")
    begins = begins.with_values(
        tf.cast(begins.values, tf.int32)
        + tf.strings.length(names)
        - tf.strings.length(stripped)
    )
    # "Jan's" becomes "Jan".
    whole = tf.strings.regex_replace(stripped, r"['’][sS]$", "")
    ends = ends.with_values(
        tf.cast(ends.values, tf.int32)
        - tf.strings.length(stripped)
        + tf.strings.length(whole)
    )
    labels = segments.entity_labels(
        tf.strings.regex_replace(
            tf.strings.lower(whole, encoding="utf-8"), r"[ \t]+", " "
        )
    )
    return segments.Mentions(
        begins=ragged_rows.keep(begins, is_name),
        ends=ragged_rows.keep(ends, is_name),
        labels=ragged_rows.keep(pieces.with_values(labels), is_name),
    )
