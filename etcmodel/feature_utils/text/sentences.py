r"""Splits texts into sentences and items of lists; graph code.

The code first marks items of lists and periods of abbreviations, then every
place where a sentence can end. Some marks are then removed, and the text is
split at the marks that remain. A sentence ends

* after `.`, `!`, `?`, `…`, the Arabic `؟`, Urdu `۔`, Armenian `։`, or `;` after
  a Greek letter, if white space and a character other than a lower-case letter
  follow; closing quotes and brackets after the mark belong to the sentence;
* after such a mark that stands alone between spaces, as in tokenized text;
* after the full stops of other scripts, with or without white space: `。`, `！`
  and `？`, the danda `।` (Hindi, Bengali, ...), Ethiopic `።`, Burmese `။`,
  Khmer `។`, Tibetan `།`, ...;
* at a space between Thai or Lao letters, at least 80 characters after the first
  such letter of the sentence, since these scripts do not mark the end of a
  sentence;
* at an empty line;
* before an item of a list.

Items of lists are

* a line that begins with `*`, `•` or another bullet, and a bullet inside a line
  (not `*`);
* a line that begins with a dash or `+`, or with a number or letter and a period
  or bracket ("1.", "a)", "(iii)"), if the line before it ends with `:`, `;`,
  `!` or `?`, or if another such line is at most four lines away;
* HTML's `<li>`, `<dt>` and `<dd>`. A sentence also ends after their closing
  tags.

A period does not end a sentence

* after the abbreviations of `abbreviations`;
* after a single letter ("J. Smith", "z. B.") or short parts without spaces
  ("U.S. Army", "i.d.R.");
* in decimals, since no white space follows;
* after the number of an item ("1. First", at the beginning of a line or
  sentence) or of a day ("3. Oktober", "3. 10. 1990");
* after a number that follows a German article ("im 2. Bezirk"), and after a
  Roman number that follows a lower-case word ("im II. Weltkrieg").

After letters, and after abbreviations that often end a sentence ("Inc.",
"usw."), a period ends a sentence if the next word often begins sentences
("The", "Der").
"""

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils.text import abbreviations

# Characters that mark the end of a sentence or item; a possible beginning of an
# item; a period that does not end a sentence.
_MARK = "\x1e"
_MAYBE = "\x1d"
_PERIOD = "\x1c"
_CLOSING = r"[\"'\)\]”’»]*"
_OPENING = r"[\"'\(\[“‘«]*"

# Punctuation of Latin, Arabic, Urdu, Armenian and Greek that ends a sentence if
# white space follows.
_MARKS = ".!?…‼⁇⁈⁉\u061e\u061f\u06d4\u0589\u037e"
# Punctuation that always ends a sentence. Most of it belongs to scripts without
# spaces.
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

# RE2's \b counts only ASCII letters; "Montréal" must not contain the word "al".
# Large classes such as \p{L} would exceed RE2's memory in long patterns.
_BEFORE_WORD = (
    r"(?:^|[\x00-/:-@\[-\^`{-\x{a9}\x{ab}-\x{b4}\x{b6}-\x{b9}\x{bb}-\x{bf}"
    r"\x{2000}-\x{206f}\x{3000}-\x{303f}\x{ff00}-\x{ff0f}])"
)
_LETTER = (
    r"[A-Za-z\x{c0}-\x{52f}\x{621}-\x{64a}\x{e01}-\x{e2e}\x{1e00}-\x{1fff}]"
)
_BEHIND_WORD = r"(?:[^\p{L}\p{M}\p{N}_]|$)"
_SPACES = rf"\s\x{{a0}}\x{{2009}}\x{{202f}}{_MARK}"

# Words that do not begin a sentence after the number of a day or a century.
# Only German needs them, since it writes months with a capital. Other languages
# with such numbers ("3. října", "3. oktober") write months in lower case, and a
# lower-case word never begins a sentence. As a result, an English text such as
# "He was 30. April was cold." is not split.
_BEHIND_ORDINALS = (
    "Januar|Jänner|Februar|Feber|März|April|Mai|Juni|Juli|August|September|"
    "Oktober|November|Dezember|Jan|Feb|Mär|Apr|Jun|Jul|Aug|Sept?|Okt|Nov|Dez|"
    "Jahrhundert(?:s|e|en)?|Jhd?t?"
)
_NEVER_LAST = (
    rf"{_BEFORE_WORD}(?:"
    rf"{abbreviations.alternatives(abbreviations.NEVER_LAST, 3)})"
)
_STREET = rf"{_LETTER}+str"
_NUMBERED = (
    rf"{_BEFORE_WORD}(?:{_STREET}|"
    rf"{abbreviations.alternatives(abbreviations.NUMBERED, 1)})"
)
# A number after a German article: "im 2. Bezirk".
_GERMAN_ORDINAL = r"(?i:der|die|das|dem|den|des|im|zum|zur|beim|vom) \d{1,3}"
_OFTEN_LAST = (
    rf"{_BEFORE_WORD}(?:{_STREET}|{_GERMAN_ORDINAL}|"
    rf"{abbreviations.alternatives(abbreviations.OFTEN_LAST)})"
)
_SMALL_LETTER = r"[\p{Ll}\x{621}-\x{64a}]"
_BEFORE_LETTERS = rf"(?:^|[{_SPACES}\(\[\"“„«§])"
_LETTERS = (
    rf"{_BEFORE_LETTERS}(?:(?:{_LETTER}{{1,3}}\.)+{_LETTER}{{1,3}}|"
    rf"{_SMALL_LETTER}|\p{{Thai}}{{1,4}})"
)
# Single letters and short parts that are not initials of names.
_SMALL_LETTERS = (
    rf"{_BEFORE_LETTERS}(?:{_SMALL_LETTER}|"
    rf"(?:[a-z\x{{df}}-\x{{f6}}]|{_LETTER}{{2,3}})(?:\.{_LETTER}{{1,3}})+)"
)
_INITIALS = rf"(?:^|[{_SPACES}\(\[\"'“‘„«.\-])(?:\p{{Lu}}\.)*\p{{Lu}}"
_ROMAN = r"\s[a-z\x{df}-\x{17f}]+ [IVX]{2,6}"
# Before a capital, these end a sentence: a unit of measurement, a letter after
# "=", "and so on".
_LAST = (
    rf"(?:\p{{N}}\s?(?:[ghlmst]|Hz|с?м)|=\s?\p{{L}}|{_BEFORE_WORD}(?:"
    rf"{abbreviations.alternatives(abbreviations.AND_SO_ON)}))"
)
_BEGINNINGS = abbreviations.alternatives(abbreviations.BEGINNINGS)
_ARTICLES = abbreviations.alternatives(abbreviations.ARTICLES)

_BULLETS = "•◦▪‣●■"
_COUNTED = (
    r"(?:\(?(?:\p{Nd}{1,3}|\p{L}|[ivxIVX]{2,5})[.\)][ \t]|"
    r"[（\(]?(?:\p{Nd}{1,3}|[一二三四五六七八九十]{1,3})[、．）])"
)
# The rest of a line, and up to four more lines.
_LINE = rf"[^\n{_MAYBE}{_MARK}]*"
_FEW_LINES = rf"{_LINE}(?:\n[ \t\r]*[^\s{_MAYBE}{_MARK}]{_LINE}){{0,4}}"


def _mark_items(beginning: str) -> tuple[tuple[str, str], ...]:
    """Returns rewrites that mark items after a colon, or near other items."""
    return (
        (rf"((?:^|\n)[ \t>]*{beginning})", rf"{_MAYBE}\1"),
        # Unmarks lines that are not items: "3. Oktober", "z. B.".
        (
            rf"{_MAYBE}(\s*(?:\d+\.\s+(?:{_BEHIND_ORDINALS}){_BEHIND_WORD}|"
            r"\p{L}\.\s?\p{L}{1,3}\.))",
            r"\1",
        ),
        (rf"{_MAYBE}({_FEW_LINES}){_MAYBE}", rf"{_MARK}\1{_MARK}"),
        # Marks the last item if the number of items is odd.
        (rf"{_MARK}({_FEW_LINES}){_MAYBE}", rf"{_MARK}\1{_MARK}"),
        (rf"([:;!?：；][\"'»”\)]*[ \t\r]*){_MAYBE}", rf"\1{_MARK}"),
        (_MAYBE, ""),
    )


# Pairs (pattern, replacement), applied in this order.
_REWRITES = (
    (rf"[{_MARK}{_MAYBE}{_PERIOD}]", " "),
    # Marks items of lists.
    (r"(\n[ \t>]*\*[ \t])", rf"{_MARK}\1"),
    (rf"(\s[{_BULLETS}])", rf"{_MARK}\1"),
    *_mark_items(_COUNTED),
    *_mark_items(r"[–—+-][ \t]"),
    (
        r"(?i)((?:<(?:ul|ol|dl)(?:\s[^<>]*)?>\s*)?"
        r"<(?:li|dt|dd)(?:\s[^<>]*)?>)",
        rf"{_MARK}\1",
    ),
    (r"(?i)((?:</(?:li|dt|dd|ul|ol|dl)>\s*)+)", rf"\1{_MARK}"),
    # Marks periods of abbreviations.
    (rf"({_LAST}\.)(\s+{_OPENING}[\p{{Lu}}\p{{N}}])", rf"\1{_MARK}\2"),
    (rf"({_NEVER_LAST})\.", rf"\1{_PERIOD}"),
    (
        rf"({_NUMBERED})\."
        rf"(\s+(?:\p{{N}}|(?:[IVXLC]{{2,6}}|[VX]){_BEHIND_WORD}))",
        rf"\1{_PERIOD}\2",
    ),
    (
        rf"((?:{_LETTERS}|{_INITIALS}|{_ROMAN}|{_OFTEN_LAST})\.)"
        rf"(\s+(?:{_BEGINNINGS})[\s,])",
        rf"\1{_MARK}\2",
    ),
    (
        rf"((?:{_SMALL_LETTERS}|{_OFTEN_LAST})\.)(\s+(?:{_ARTICLES})[\s,])",
        rf"\1{_MARK}\2",
    ),
    (
        rf"({_LETTERS}|{_INITIALS}|{_ROMAN}|{_OFTEN_LAST})\.",
        rf"\1{_PERIOD}",
    ),
    (rf"{_PERIOD}([\"'\)\]”’»]|\s+--\s)", r".\1"),
    # Marks places where sentences can end. White space stays, after the mark.
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
    # Removes marks where sentences do not end.
    (
        rf"({_BEFORE_WORD}[0-3]?\d\.){_MARK}"
        rf"(\s+(?:{_BEHIND_ORDINALS}){_BEHIND_WORD})",
        r"\1\2",
    ),
    (
        rf"({_BEFORE_WORD}\d{{1,2}}\.){_MARK}(\s+\d{{1,2}}\.){_MARK}(\s+\d{{4}})",
        r"\1\2\3",
    ),
    (
        rf"((?:^|\n|{_MARK})\s*(?:(?:\p{{Nd}}{{1,2}}\.)+|[IVXLC]{{1,6}}\.))"
        rf"{_MARK}",
        r"\1",
    ),
    (_PERIOD, "."),
)


def split_sentences(texts: tf.Tensor | tf.RaggedTensor) -> tf.RaggedTensor:
    """Splits texts into `<string>[..., (sentences)]`; graph code.

    Only white space around sentences is lost. Example: `"Mr. Bo ran 3.5
    km. He won!"` gives `["Mr. Bo ran 3.5 km.", "He won!"]`, and `""` gives
    `[]`.
    """
    if isinstance(texts, tf.RaggedTensor):
        return texts.with_flat_values(split_sentences(texts.flat_values))
    texts = tf.convert_to_tensor(texts, tf.string)
    if texts.shape.rank is None:
        raise ValueError(
            "The rank of the texts is unknown. Set it with `set_shape`."
        )
    if texts.shape.rank == 0:
        # [(sentences)]
        return split_sentences(texts[tf.newaxis])[0]
    if texts.shape.rank > 1:
        return split_sentences(
            tf.RaggedTensor.from_tensor(texts, ragged_rank=texts.shape.rank - 1)
        )
    marked = texts
    for pattern, rewrite in _REWRITES:
        marked = tf.strings.regex_replace(marked, pattern, rewrite)
    # [n, (sentences)]
    pieces = tf.strings.split(marked, _MARK)
    pieces = pieces.with_values(tf.strings.strip(pieces.values))
    return ragged_rows.keep(pieces, tf.not_equal(pieces.values, ""))
