r"""Splitting texts into sentences; graph code, two common ops.

Every place where a sentence can end is marked, marks behind abbreviations and
initials are taken back, and the text is cut at what is left. A sentence can end

* after `.`, `!`, `?`, `…`, the Arabic `؟`, Urdu `۔`, Armenian `։`, or `;` after
  a Greek letter (and closing quotes and brackets), if white space follows, and
  then anything that can begin a sentence: not a lower-case letter;
* after such a mark that stands alone between spaces, as in tokenized text;
* after the full stops of other scripts, with or without white space: `。`, `！`
  and `？`, the danda `।` (Hindi, Bengali, ...), Ethiopic `።`, Burmese `။`,
  Khmer `។`, Tibetan `།`, ...;
* at a space between Thai or Lao letters, 80 characters or more after the first
  such letter of the sentence: Thai and Lao have no mark that ends a sentence;
* at an empty line.

A period does not end a sentence behind a title or an abbreviation ("Mr.",
"e.g."), behind a single letter ("J. Smith", "the U.S. Army"), or behind one
that a number follows ("No. 5"); not in decimals, as no white space follows. Nor
does it behind the number of an item ("1. First", at the beginning of a line or
sentence) or of a day ("3. Oktober", "3. 10. 1990").
Behind a letter or an abbreviation that often ends a sentence ("U.S.", "Inc.",
"p.m.") it does if the next word is one with which sentences begin ("The").
"""

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows

_MARK = "\x1e"
_CLOSING = r"[\"'\)\]”’»]*"
_OPENING = r"[\"'\(\[“‘«]*"

# They end a sentence if white space follows: the Latin ones, and those of
# Arabic, Urdu, Armenian and Greek.
_MARKS = ".!?…‼⁇⁈⁉\u061e\u061f\u06d4\u0589\u037e"
# They end a sentence in any case; most are used where no spaces are written.
_FULL_STOPS = (
    "。！？｡"  # Chinese, Japanese.
    "\u0964\u0965\ua8ce\ua8cf"  # Hindi, Bengali, ...; Saurashtra.
    "\u1362\u1367\u1368"  # Amharic, Tigrinya.
    "\u104b\u17d4\u17d5\u0f0d\u0f0e"  # Burmese, Khmer, Tibetan.
    "\u0700\u0701\u0702\u07f9"  # Syriac, N'Ko.
    "\u1803\u1809\u1c7e\u1c7f\uabeb"  # Mongolian, Santali, Manipuri.
    "\ua9c8\ua9c9\u1b5a\u1b5b\u1b5e\u1b5f"  # Javanese, Balinese.
    "\ua4ff\ua60e\ua60f\u2cf9\u2cfa\u2cfb"  # Lisu, Vai, Coptic.
)
_UNMARKED = r"[\p{Thai}\p{Lao}]"
_MIN_UNMARKED = 80

# RE2's \b takes letters beyond ASCII for no letters: "Montréal" has no "al".
_BEFORE_WORD = r"(?:^|[^\p{L}\p{M}\p{N}_])"
_BEHIND_WORD = r"(?:[^\p{L}\p{M}\p{N}_]|$)"

# Never at the end of a sentence.
_TITLES = (
    "Mr|Mrs|Ms|Mx|Dr|Prof|St|Ste|Mt|Ft|Gen|Col|Maj|Lt|Cmdr|Cpl|Sgt|Capt|Adm|"
    "Brig|Rev|Hon|Gov|Pres|Sen|Rep|Msgr|Fr|Messrs|Mme|Mlle|vs|v|cf|ca|viz|al|"
    "e\\.g|i\\.e|approx|esp|incl|resp|lit|trans|née|Op"
)
# Not at the end of a sentence if a number follows.
_NUMBERED = (
    "No|Nos|no|nos|Nr|Vol|vol|Vols|pp|p|Fig|fig|Figs|Sec|sec|Ch|ch|Art|art|"
    "Eq|eq|Par|b|c|d|r|fl|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec|"
    "Mär|Okt|Dez"
)
# Not the beginning of a sentence behind the number of a day or a century.
# Capitals make German special: most languages with such numbers ("3. října",
# "3. oktober") write months with small letters, which begin no sentence. The
# price is English such as "He was 30. April was cold.", which is not split.
_BEHIND_ORDINALS = (
    "Januar|Jänner|Februar|Feber|März|April|Mai|Juni|Juli|August|September|"
    "Oktober|November|Dezember|Jan|Feb|Mär|Apr|Jun|Jul|Aug|Sept?|Okt|Nov|Dez|"
    "Jahrhundert(?:s|e|en)?"
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
        rf"((?:[{_MARKS}]|\p{{Greek}};){_CLOSING})"
        rf"(\s+{_OPENING}[^\s\p{{Ll}}{_MARKS},;:\"'\)\]”’»])",
        rf"\1{_MARK}\2",
    ),
    (rf"(\s[{_MARKS}])(\s)", rf"\1{_MARK}\2"),
    (rf"([{_FULL_STOPS}]+[”’」』）]*)", rf"\1{_MARK}"),
    (r"(\n[ \t\r]*\n)", rf"{_MARK}\1"),
    (
        rf"({_UNMARKED}[^{_MARK}]{{{_MIN_UNMARKED},}}?{_UNMARKED})"
        rf"(\s+{_UNMARKED})",
        rf"\1{_MARK}\2",
    ),
    # Where they do not.
    (rf"({_BEFORE_WORD}(?:{_TITLES}|{_OFTEN_LAST})\.){_MARK}", r"\1"),
    (rf"({_BEFORE_WORD}(?:{_NUMBERED})\.){_MARK}(\s+\p{{N}})", r"\1\2"),
    (rf"((?:^|[\s\(\[\"'“‘.\-])\p{{Lu}}\.){_MARK}", r"\1"),
    (
        rf"({_BEFORE_WORD}[0-3]?\d\.){_MARK}(\s+(?:{_BEHIND_ORDINALS}){_BEHIND_WORD})",
        r"\1\2",
    ),
    (
        rf"({_BEFORE_WORD}\d{{1,2}}\.){_MARK}(\s+\d{{1,2}}\.){_MARK}(\s+\d{{4}})",
        r"\1\2\3",
    ),
    (rf"((?:^|\n|{_MARK})\s*(?:\p{{Nd}}{{1,2}}\.)+){_MARK}", r"\1"),
    # Where they do nevertheless.
    (
        rf"((?:\b(?:{_OFTEN_LAST})|[.\s]\p{{Lu}})\.)(\s+(?:{_BEGINNINGS})\s)",
        rf"\1{_MARK}\2",
    ),
)


def split_sentences(texts: tf.Tensor | tf.RaggedTensor) -> tf.RaggedTensor:
    """Splits texts into `<string>[..., (sentences)]`; graph code.

    Nothing is lost but white space around sentences. Example: `"Mr. Bo ran 3.5
    km. He won!"` gives `["Mr. Bo ran 3.5 km.", "He won!"]`, and `""` `[]`.
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
    return ragged_rows.keep(pieces, tf.not_equal(pieces.values, ""))
