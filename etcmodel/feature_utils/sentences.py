r"""Splitting texts into sentences; graph code, two common ops.

Every place where a sentence can end is marked, marks behind abbreviations and
initials are taken back, and the text is cut at what is left. A sentence can end

* behind `.`, `!`, `?` or `…` (and closing quotes and brackets), if white space
  follows, and then anything that can begin a sentence: not a lower-case letter;
* behind such a mark standing alone between spaces, as in tokenized text;
* behind `。`, `！` or `？`;
* at an empty line.

A period does not end a sentence behind a title or an abbreviation ("Mr.",
"e.g."), behind a single letter ("J. Smith", "the U.S. Army"), or behind one
that a number follows ("No. 5"); not in decimals, as no white space follows.
Behind a letter or an abbreviation that often ends a sentence ("U.S.", "Inc.",
"p.m.") it does if the next word is one with which sentences begin ("The").
"""

import tensorflow as tf

_MARK = "\x1e"
_CLOSING = r"[\"'\)\]”’»]*"
_OPENING = r"[\"'\(\[“‘«]*"

# Never at the end of a sentence.
_TITLES = (
    "Mr|Mrs|Ms|Mx|Dr|Prof|St|Ste|Mt|Ft|Gen|Col|Maj|Lt|Cmdr|Cpl|Sgt|Capt|Adm|"
    "Brig|Rev|Hon|Gov|Pres|Sen|Rep|Msgr|Fr|Messrs|Mme|Mlle|vs|v|cf|ca|viz|al|"
    "e\\.g|i\\.e|approx|esp|incl|resp|lit|trans|née|Op"
)
# Not at the end of a sentence if a number follows.
_NUMBERED = (
    "No|Nos|no|nos|Nr|Vol|vol|Vols|pp|p|Fig|fig|Figs|Sec|sec|Ch|ch|Art|art|"
    "Eq|eq|Par|b|c|d|r|fl|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec"
)
# At the end of a sentence only if one begins behind them.
_OFTEN_LAST = (
    "Inc|Ltd|Co|Corp|Bros|Jr|Sr|Esq|Dept|Univ|Assn|Ave|Blvd|Rd|Ph\\.D|"
    "[ap]\\.m|etc"
)
_BEGINNINGS = (
    "The|This|That|These|Those|It|Its|He|She|His|Her|They|Their|There|We|"
    "Our|You|In|On|At|As|By|For|From|After|Before|During|When|While|Since|"
    "But|And|However|Although|Though|If|Both|Some|Many|Most|One|An"
)

# Applied one after the other.
_REWRITES = (
    # Where sentences can end. White space stays, behind the mark.
    (
        rf"([.!?…]{_CLOSING})(\s+{_OPENING}[^\s\p{{Ll}}.!?,;:…\"'\)\]”’»])",
        rf"\1{_MARK}\2",
    ),
    (r"(\s[.!?])(\s)", rf"\1{_MARK}\2"),
    (r"([。！？]+[”’」』）]*)", rf"\1{_MARK}"),
    (r"(\n[ \t\r]*\n)", rf"{_MARK}\1"),
    # Where they do not.
    (rf"\b({_TITLES}|{_OFTEN_LAST})\.{_MARK}", r"\1."),
    (rf"\b({_NUMBERED})\.{_MARK}(\s+\p{{N}})", r"\1.\2"),
    (rf"((?:^|[\s\(\[\"'“‘.\-])\p{{Lu}}\.){_MARK}", r"\1"),
    # Where they do nevertheless.
    (
        rf"((?:\b(?:{_OFTEN_LAST})|[.\s]\p{{Lu}})\.)(\s+(?:{_BEGINNINGS})\s)",
        rf"\1{_MARK}\2",
    ),
)


def split_sentences(texts: tf.Tensor | tf.RaggedTensor) -> tf.RaggedTensor:
    """Splits texts into sentences; graph code.

    Nothing is lost but white space around sentences.

    Example: `"Mr. Bo ran 3.5 km. He won!"` gives `["Mr. Bo ran 3.5 km.",
    "He won!"]`, and `""` gives `[]`.

    Args:
        texts: <string>[...], dense or ragged, UTF-8 (see
            `tokenizers.sanitize`).

    Returns:
        <string>[..., (sentences)].
    """
    if isinstance(texts, tf.RaggedTensor):
        return texts.with_flat_values(split_sentences(texts.flat_values))
    texts = tf.convert_to_tensor(texts, tf.string)
    if texts.shape.rank is None:
        raise ValueError("The rank of the texts must be known.")
    if texts.shape.rank == 0:
        # [(sentences)]
        return split_sentences(texts[tf.newaxis])[0]
    if texts.shape.rank > 1:
        return split_sentences(
            tf.RaggedTensor.from_tensor(texts, ragged_rank=texts.shape.rank - 1)
        )
    marked = tf.strings.regex_replace(texts, _MARK, " ")
    for pattern, rewrite in _REWRITES:
        marked = tf.strings.regex_replace(marked, pattern, rewrite)
    # [n, (sentences)]
    pieces = tf.strings.split(marked, _MARK)
    pieces = pieces.with_values(tf.strings.strip(pieces.values))
    return tf.ragged.boolean_mask(
        pieces, pieces.with_values(tf.not_equal(pieces.values, ""))
    )
