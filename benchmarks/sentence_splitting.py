"""Measures precision and recall of the sentence splitter.

    python -m benchmarks.sentence_splitting
    python -m benchmarks.sentence_splitting --languages_dir=FOLDER

The passages in `data/sentences.txt` have abbreviations and lists; their units
are marked by hand. `--languages_dir` adds XQuAD's contexts, from files such as
`de.txt` with one sentence per line; the first 200 boundaries of each language
are used.

Columns: `boundaries`, the number of boundaries between units, and the
splitter's precision and recall.
"""

import os
import pathlib
from collections.abc import Iterable
from collections.abc import Iterator

import tensorflow as tf

from benchmarks import program
from etcmodel.feature_utils.text import sentences

MARKED = pathlib.Path(__file__).parent / "data" / "sentences.txt"
_MAX_BOUNDARIES = 200
# XQuAD's contexts were split into lines by a simple rule. These lines, counted
# from 0, end within a sentence, such as "Sergius IV." before "von Neapel".
_CONTINUED = {
    "ar": (135,),
    "de": (32, 67, 69, 72, 132, 167, 168, 206, 218, 235),
    "el": (111, 144),
    "es": (107, 138, 139),
    "hi": (137, 138),
    "ro": (108, 140),
    "ru": (20, 47, 136, 151, 152),
    "tr": (15, 49, 59, 61, 64, 116, 148, 149, 200, 214, 217, 227),
    "vi": (139, 140),
    "zh": (),
}
# Lines after which text is missing, or which end within a number. Passages are
# split after them.
_DAMAGED = {
    "ar": (29, 31, 32, 72, 86, 117, 129, 159, 160, 161, 163, 203) + (235,),
    "de": (35, 37, 38, 39, 47, 49, 52, 60, 82, 107, 112, 120, 131, 146, 179)
    + (180, 223, 225, 236),
    "el": (29, 31, 32, 33, 51, 69, 76, 90, 123, 124, 145, 155, 156, 159, 172)
    + (174, 197, 207),
    "es": (28, 77, 86, 161, 162, 163, 165, 205, 216),
    "hi": (29, 30, 31, 32, 33, 86, 117, 160, 161, 163, 165, 237),
    "ro": (29, 31, 32, 33, 49, 67, 69, 74, 88, 120, 141, 151, 152, 163, 164)
    + (165, 167, 189, 190, 199, 209, 220),
    "ru": (71, 85, 105, 137, 138, 205, 206),
    "tr": (28, 30, 32, 33, 34, 52, 75, 82, 96, 128, 160, 161, 175, 176, 178)
    + (180, 204, 206, 216, 224),
    "vi": (29, 31, 32, 33, 66, 73, 87, 107, 119, 151, 152, 186, 195, 216),
    "zh": (29, 30, 31, 32, 84, 154, 155, 156, 158, 228),
}


def read_marked() -> dict[str, list[list[str]]]:
    """Reads the marked passages: language -> passages -> units."""
    found = {}
    for line in MARKED.read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and line.endswith("]"):
            passages = found[line[1:-1]] = []
        elif line and not line.startswith("#"):
            passages.append(line.replace("\\n", "\n").split("|"))
    return found


def read_lines(folder: str, language: str) -> list[list[str]]:
    """Reads XQuAD's contexts of a language: passages -> sentences."""
    path = pathlib.Path(folder, f"{language}.txt")
    lines = [
        line.strip()
        # A paragraph may begin with a byte order mark.
        for line in path.read_text("utf-8").replace("\ufeff", "").splitlines()
        if line.strip()
    ]
    passages, sentence, missing = [[]], "", _MAX_BOUNDARIES
    for i, line in enumerate(lines):
        sentence += f" {line}"
        if i in _CONTINUED[language]:
            continue
        passages[-1].append(sentence)
        sentence = ""
        missing -= len(passages[-1]) > 1
        if not missing:
            break
        if i in _DAMAGED[language]:
            passages.append([])
    return passages


def boundaries(units: Iterable[str]) -> set[int]:
    """Returns the ends of all units except the last.

    An end is the number of non-space characters before it.
    """
    ends, end = [], 0
    for unit in units:
        end += len("".join(unit.split()))
        ends.append(end)
    return set(ends[:-1])


def split(passages: Iterable[Iterable[str]]) -> list[list[str]]:
    """Splits the texts of passages with the splitter."""
    texts = ["".join(units) for units in passages]
    found = sentences.split_sentences(tf.constant(texts, tf.string))
    return [[unit.decode() for unit in units] for units in found.to_list()]


def score(language: str, source: str, passages: list[list[str]]) -> dict:
    """Computes precision and recall; returns a line of the table."""
    num_marked = num_found = num_right = 0
    for units, parts in zip(passages, split(passages), strict=True):
        marked, found = boundaries(units), boundaries(parts)
        num_marked += len(marked)
        num_found += len(found)
        num_right += len(marked & found)
    return {
        "source": source,
        "language": language,
        "boundaries": num_marked,
        "precision": num_right / max(num_found, 1),
        "recall": num_right / max(num_marked, 1),
    }


def _measure(values) -> Iterator[program.Line]:
    for language, passages in read_marked().items():
        yield score(language, "marked", passages)
    if values.languages_dir:
        for language in _DAMAGED:
            passages = read_lines(values.languages_dir, language)
            yield score(language, "xquad", passages)


PROGRAM = program.load("sentence_splitting", _measure)

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    program.main(PROGRAM)
