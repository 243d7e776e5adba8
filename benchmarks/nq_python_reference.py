"""Natural Questions in plain Python, one word and one token after another.

The way in which the original code works, from its description: what
`preprocess.py` compares the graph code with, in speed, and tests in results.
As in the package, and not in the original, there is no global token for what
follows the last candidate, separators are linked to no global token, tokens
have the types of the other tasks, an answer may begin or end with words that
have no tokens, yes and no are learned only where an end of the long answer is
seen, and what is stored besides is for evaluation. Windows are not sampled.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.python_tokenizer import BertTokenizer
from benchmarks.wikihop_python_reference import to_example
from benchmarks.wikihop_python_reference import to_json

PADDING = {
    "long_token_ids": 0,
    "long_token_type_ids": 0,
    "long_sentence_ids": -1,
    "long_paragraph_breakpoints": 0,
    "words": -1,
    "global_token_ids": 0,
    "global_token_type_ids": 0,
    "global_paragraph_breakpoints": 0,
}
NULL, YES, NO, LONG, SHORT = range(5)


class Piece(NamedTuple):
    """A token of a page.

    Attributes:
        token: its id.
        word: the word that it is a part of.
        candidate: the long-answer candidate that it lies in.
    """

    token: int
    word: int
    candidate: int


class Window(NamedTuple):
    """A part of a page as features.

    Attributes:
        features: those of the long input, and those of the global one.
        start: the first token of the page that it shows.
        size: how many of them it shows.
        page_start: the position of that token.
    """

    features: dict[str, list[int]]
    start: int
    size: int
    page_start: int


def make_pieces(record, tokenizer: BertTokenizer, html: bool) -> list[Piece]:
    """The tokens of a page, of what lies in a top-level candidate.

    Args:
        record: the `NQRecord`.
        tokenizer: a `BertTokenizer`.
        html: whether HTML tags are tokens.

    Returns:
        The tokens.
    """
    opens, closes = (
        tokenizer.vocab.get(f"[unused{i}]", -1) for i in (102, 103)
    )
    pieces = []
    index = 0
    for candidate in record.candidates:
        if not candidate.top_level:
            continue
        for word in range(candidate.start, candidate.end):
            text = record.tokens[word]
            if not record.is_html[word]:
                for token in tokenizer(text):
                    pieces.append(Piece(token, word, index))
            elif html:
                tag = closes if text.startswith("</") else opens
                pieces.append(Piece(tag, word, index))
        index += 1
    return pieces


def make_window(
    question: Sequence[int],
    pieces: Sequence[Piece],
    vocab: Mapping[str, int],
    long_length: int,
    global_length: int,
) -> dict[str, list[int]]:
    """Features of one window.

    Args:
        question: tokens of the question.
        pieces: tokens of the page that the window shows.
        vocab: token -> id.
        long_length: length of the long features.
        global_length: length of the global features.

    Returns:
        The features, <int>[long_length] and <int>[global_length].
    """
    features: dict[str, list[int]] = {name: [] for name in PADDING}

    def add_long(token, kind, sentence=-1, word=-1):
        """Appends a token to the long input."""
        features["long_token_ids"].append(token)
        features["long_token_type_ids"].append(kind)
        features["long_sentence_ids"].append(sentence)
        features["long_paragraph_breakpoints"].append(0)
        features["words"].append(word)

    def add_global(token, kind) -> int:
        """Appends a global token and gives its index."""
        features["global_token_ids"].append(token)
        features["global_token_type_ids"].append(kind)
        features["global_paragraph_breakpoints"].append(0)
        return len(features["global_token_ids"]) - 1

    add_long(vocab["[CLS]"], 1, add_global(vocab["[CLS]"], 8))
    for token in question:
        add_long(token, 3, add_global(vocab["[unused2]"], 5))
    add_long(vocab["[SEP]"], 3)
    candidate = sentence = None
    for piece in pieces:
        if piece.candidate != candidate:
            candidate = piece.candidate
            # The last one is shared by those for which there is no room.
            if len(features["global_token_ids"]) < global_length:
                sentence = add_global(vocab["[unused0]"], 0)
        add_long(piece.token, 1, sentence, piece.word)
    add_long(vocab["[SEP]"], 3)
    features["long_paragraph_breakpoints"][-1] = 1
    features["global_paragraph_breakpoints"][-1] = 1
    for name, values in features.items():
        length = global_length if "global" in name else long_length
        values += [PADDING[name]] * (length - len(values))
    return features


def make_windows(
    record, pieces: Sequence[Piece], tokenizer: BertTokenizer, config
) -> list[Window]:
    """The windows of one record.

    Args:
        record: the `NQRecord`.
        pieces: the tokens of its page.
        tokenizer: a `BertTokenizer`.
        config: the `NQPreprocessingConfig`.

    Returns:
        The windows.
    """
    question = tokenizer(record.question)[: config.question_length]
    # Beside a CLS and two separators.
    room = config.long_length - len(question) - 3
    windows = []
    end = max(len(pieces) - room, 0) + config.stride
    for start in range(0, end, config.stride):
        shown = pieces[start : start + room]
        features = make_window(
            question,
            shown,
            tokenizer.vocab,
            config.long_length,
            config.global_length,
        )
        windows.append(Window(features, start, len(shown), len(question) + 2))
    return windows


def make_features(record, tokenizer, config) -> list[dict[str, list[int]]]:
    """Features of the windows of one record.

    Args:
        record: the `NQRecord`.
        tokenizer: a `BertTokenizer`.
        config: the `NQPreprocessingConfig`.

    Returns:
        For each window <int>[long_length] and <int>[global_length].
    """
    pieces = make_pieces(record, tokenizer, config.include_html_tokens)
    windows = make_windows(record, pieces, tokenizer, config)
    return [window.features for window in windows]


def find_span(
    pieces: Sequence[Piece], start: int, end: int
) -> tuple[int, int] | None:
    """First and last token of a span of words; None if it has none."""
    if start < 0:
        return None
    inside = [i for i, x in enumerate(pieces) if start <= x.word < end]
    return (inside[0], inside[-1]) if inside else None


def make_labels(
    annotation, windows: Sequence[Window], pieces: Sequence[Piece]
) -> list[dict[str, list[int]]]:
    """What is to be learned of the windows of a page.

    Args:
        annotation: the `Annotation`.
        windows: the windows.
        pieces: the tokens of the page.

    Returns:
        For each window first and last token of the short and of the long
        answer, 0 for what it does not show, and the type of the answer.
    """
    kind = NULL
    if annotation.yes_no != "none":
        kind = YES if annotation.yes_no == "yes" else NO
    elif annotation.short_answers:
        kind = SHORT
    elif annotation.long_start >= 0:
        kind = LONG
    long = find_span(pieces, annotation.long_start, annotation.long_end)
    short = None
    if annotation.short_answers:
        short = find_span(
            pieces,
            min(start for start, _ in annotation.short_answers),
            max(end for _, end in annotation.short_answers),
        )
    labels = []
    for window in windows:
        positions = []
        for token in (*(short or (-1, -1)), *(long or (-1, -1))):
            index = token - window.start
            is_shown = token >= 0 and 0 <= index < window.size
            positions.append(window.page_start + index if is_shown else 0)
        sought = positions[:2] if kind == SHORT else positions[2:]
        labels.append(
            {
                "short_answer_start": [positions[0]],
                "short_answer_end": [positions[1]],
                "long_answer_start": [positions[2]],
                "long_answer_end": [positions[3]],
                "answer_type": [kind if any(sought) else NULL],
            }
        )
    return labels


def encode(record, tokenizer, config) -> list[bytes]:
    """What is stored of the windows of one record, for training.

    Args:
        record: the `NQRecord`, with its answers.
        tokenizer: a `BertTokenizer`.
        config: the `NQPreprocessingConfig`.

    Returns:
        A serialized example of each window.
    """
    annotations = record.annotations
    gold = {
        "long_answers": [(x.long_start, x.long_end) for x in annotations],
        "short_answers": [x.short_answers for x in annotations],
        "yes_no": [x.yes_no for x in annotations],
    }
    common = {
        "example_id": [record.id],
        "question": [record.question],
        "candidate_starts": [x.start for x in record.candidates],
        "candidate_ends": [x.end for x in record.candidates],
        "reference": [to_json([gold, None])],
    }
    pieces = make_pieces(record, tokenizer, config.include_html_tokens)
    windows = make_windows(record, pieces, tokenizer, config)
    labels = make_labels(annotations[0], windows, pieces)
    return [
        to_example(
            {
                **window.features,
                **learned,
                **common,
                # Not stored where it is the only one.
                "window": [i] if len(windows) > 1 else [],
            }
        )
        for i, (window, learned) in enumerate(zip(windows, labels, strict=True))
    ]
