"""Generates pages in OpenKP's format, whose keyphrases are their headings.

A page also has links and labels that are as long as headings. They differ from
headings only in their visual features, not in their text. Paragraphs repeat
headings, links and labels in another case, sometimes before the node that they
repeat. On some pages, a keyphrase does not occur at all, or occurs only after a
paragraph that is too long. Nodes are arranged in columns. As in the official
files, a node's parent is itself, its column, or the block before it.
"""

import json
import os
import random
from collections.abc import Sequence

from etcmodel.datasets.openkp import FEATURES
from etcmodel.feature_utils.text import tokenizers
from testing.helpers import write_vocab

# Words that are single tokens in all of BERT's vocabularies.
WORDS = (
    "river stone garden winter summer mountain bridge castle forest island "
    "valley harbor engine rocket planet silver golden copper iron wooden "
    "paper window kitchen bottle hammer camera guitar piano violin drum "
    "market doctor lawyer teacher farmer soldier pilot sailor singer dancer "
    "horse tiger eagle dolphin rabbit monkey elephant snake spider butterfly "
    "bread cheese butter sugar coffee apple orange banana cherry potato "
    "storm thunder rain snow cloud desert ocean beach cave tower palace "
    "museum library theater hospital school college station airport hotel "
    "train truck bicycle boat plane wheel battery cable screen keyboard "
    "letter story novel poem song movie game puzzle chess football tennis "
    "green yellow purple brown white black bright dark quiet loud heavy "
    "light early late modern ancient simple secret royal national public "
    "private central northern southern eastern western famous popular"
).split()

# Type of node -> is_block, is_inline, is_heading, font sizes.
_LOOKS = {
    "heading": (1, 0, 1, (20, 24, 28, 32)),
    "link": (0, 1, 0, (11, 12, 14)),
    "label": (1, 0, 0, (12, 14, 16)),
    "paragraph": (1, 0, 0, (14, 16)),
}
_LONG = 400
# Functions that set the case of short nodes.
_CASES = (str.title, str.title, str.capitalize, str)
# The left edge and the width of each column.
_COLUMNS = ((24, 700), (48, 619), (358, 309))


def make_page(
    seed: int,
    words: Sequence[str] = WORDS,
    other_headings: Sequence[str] = (),
) -> dict:
    """Returns a page in the official format; each seed gives another page.

    The page includes two of `other_headings`, which are not keyphrases.
    """
    rng = random.Random(seed)
    words = rng.sample(words, len(words))

    def phrase():
        return " ".join(words.pop() for _ in range(rng.choice((1, 2, 2, 3))))

    headings = [phrase() for _ in range(rng.choice((1, 2, 2, *[3] * 17)))]
    others = [phrase() for _ in range(rng.randint(4, 6))]
    short = [("heading", x) for x in headings]
    short += [(rng.choice(("link", "label")), x) for x in others]
    if other_headings:
        short += [("heading", x) for x in rng.sample(other_headings, 2)]
    rng.shuffle(short)
    if rng.random() < 0.05:
        missing, headings[-1] = headings[-1], phrase()
        short = [x for x in short if x[1] != missing]
    kinds, shown = [], []
    for kind, text in short:
        kinds.append((kind, text))
        shown.append(text)
        if kind == "link" or rng.random() < 0.3:
            continue
        filler = rng.choices(words, k=rng.randint(4, 10))
        # Paragraphs mostly repeat phrases that the page has shown before.
        pool = shown if rng.random() < 0.9 else headings + others
        filler.insert(rng.randrange(len(filler)), rng.choice(pool))
        kinds.append(("paragraph", " ".join(filler)))
    if rng.random() < 0.05:
        filler = " ".join(rng.choices(words, k=_LONG))
        kinds.insert(-1, ("paragraph", filler))
    kinds = [
        (kind, x.capitalize() if kind == "paragraph" else rng.choice(_CASES)(x))
        for kind, x in kinds
    ]
    text = " ".join(x for _, x in kinds)
    return {
        "url": f"http://{words[0]}.com/{seed}",
        "text": text,
        "VDOM": json.dumps(_nodes(rng, kinds)),
        "KeyPhrases": [x.title().split() for x in headings],
    }


def _nodes(rng, kinds) -> list[dict]:
    """Returns the nodes, each within a column and with a parent."""
    nodes, start, y, block_before = [], 0, rng.randint(40, 120), None
    for kind, text in kinds:
        end = start + len(text.split())
        block, inline, heading, sizes = _LOOKS[kind]
        if block_before is None or rng.random() < 0.2:
            x, width = rng.choice(_COLUMNS)
        own = {
            "x": x + (80 * start % 400 if inline else 0),
            "width": 60 + 20 * rng.randint(0, 9) if inline else width,
            "y": y,
            "height": 20 + 4 * (end - start),
            "is_block": block,
            "is_inline": inline,
            "is_heading": heading,
            "is_leaf": rng.choice((0, 1)),
            "font_size": rng.choice(sizes),
            "is_bold": int(rng.random() < 0.4),
        }
        column = {
            **own,
            **{"x": x, "width": width, "height": own["height"] + 8},
            **{"is_block": 1, "is_inline": 0, "is_leaf": 0},
        }
        if not inline:
            block_before = own
        parent = rng.choice((own, column, block_before or column))
        values = {**own, **{f"parent_{k}": x for k, x in parent.items()}}
        nodes.append(
            {
                "Id": 0,
                "text": text,
                "feature": [float(values[name]) for name in FEATURES],
                "start_idx": start,
                "end_idx": end,
            }
        )
        start = end
        y += 0 if inline else own["height"] + rng.choice((4, 16))
    return nodes


def write_small_openkp(
    directory: str, num_records: int, first: int = 0, **options
) -> tuple[str, str]:
    """Writes a file of pages, and a vocabulary; returns their paths.

    `first` is the first page's seed. `options` are passed to `make_page`.
    """
    path = os.path.join(directory, f"pages_{first}.jsonl")
    with open(path, "w", encoding="utf-8") as stream:
        for seed in range(first, first + num_records):
            stream.write(json.dumps(make_page(seed, **options)) + "\n")
    tokens = (*tokenizers.WORDPIECE_RESERVED_TOKENS, *WORDS)
    return path, write_vocab(directory, tokens)
