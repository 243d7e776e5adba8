"""HotpotQA's features and labels in plain Python, one token after another.

The way in which the original code works, from its description: what
`preprocess.py` compares the graph code with, in speed, and tests in results.
As in the package, and not in the original, global tokens have types, all
occurrences of the answer are stored, of words rather than parts of them, and
those of sentences in the input alone; empty sentences at the end of a
paragraph do not count; and what is stored besides is for reading answers from
characters.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from benchmarks.python_tokenizer import BertTokenizer
from benchmarks.wikihop_python_reference import to_example
from benchmarks.wikihop_python_reference import to_json
from etcmodel.feature_utils.text import word_cuts

PADDING = {
    "long_token_ids": 0,
    "long_token_type_ids": 0,
    "long_sentence_ids": -1,
    "long_paragraph_ids": -1,
    "long_paragraph_breakpoints": 0,
    "long_starts": -1,
    "long_ends": -1,
    "long_word_cuts": 0,
    "global_token_ids": 0,
    "global_token_type_ids": 0,
    "global_paragraph_breakpoints": 0,
    "global_segments": -1,
    "supporting_facts": -1,
}


class Place(NamedTuple):
    """Where a token comes from.

    Attributes:
        paragraph: its paragraph.
        segment: 0 for the title, 1 for the first sentence and so on; -1 for
            the paragraph itself.
        start: its first character in the title or sentence.
        end: the character after its last one.
    """

    paragraph: int
    segment: int
    start: int = -1
    end: int = -1


class Converted(NamedTuple):
    """A record as features.

    Attributes:
        features: those of the long input, and those of the global one, without
            padding.
        long_places: where the tokens of the long input come from; None for the
            CLS and the question.
        global_places: likewise.
    """

    features: dict[str, list[int]]
    long_places: list[Place | None]
    global_places: list[Place | None]


def byte_offsets(text: str) -> list[int]:
    """Where each character starts as UTF-8, and the end."""
    offsets = [0]
    for char in text:
        offsets.append(offsets[-1] + len(char.encode()))
    return offsets


def convert(
    question: str,
    context: Sequence[tuple[str, Sequence[str]]],
    tokenizer: BertTokenizer,
    long_length: int = 4096,
    global_length: int = 256,
) -> Converted:
    """Features of one record.

    Args:
        question: the question.
        context: title and sentences of each paragraph.
        tokenizer: gives tokens.
        long_length: the most long tokens.
        global_length: the most global tokens.

    Returns:
        The features.
    """
    names = [name for name in PADDING if name != "supporting_facts"]
    features: dict[str, list[int]] = {name: [] for name in names}
    long_places: list[Place | None] = []
    global_places: list[Place | None] = []

    def add_long(token, kind, sentence, paragraph=-1, span=(-1, -1)):
        """Appends a token to the long input."""
        features["long_token_ids"].append(token)
        features["long_token_type_ids"].append(kind)
        features["long_sentence_ids"].append(sentence)
        features["long_paragraph_ids"].append(paragraph)
        features["long_paragraph_breakpoints"].append(0)
        features["long_starts"].append(span[0])
        features["long_ends"].append(span[1])
        features["long_word_cuts"].append(0)

    def add_global(token, kind, place=None, segment=-1) -> int:
        """Appends a global token and gives its index."""
        features["global_token_ids"].append(token)
        features["global_token_type_ids"].append(kind)
        features["global_paragraph_breakpoints"].append(0)
        features["global_segments"].append(segment)
        global_places.append(place)
        return len(global_places) - 1

    def end():
        """Ends a paragraph in both inputs."""
        features["long_paragraph_breakpoints"][-1] = 1
        features["global_paragraph_breakpoints"][-1] = 1

    vocab = tokenizer.vocab
    names = tokenizer.tokens

    def joins(before, token) -> bool:
        """Whether two tokens are parts of a word."""
        before, after = names[before], names[token]
        return after.startswith("##") and all(
            unicodedata.category(x)[0] in "LMN"
            and unicodedata.name(x, "").partition(" ")[0]
            not in word_cuts.WITHOUT_SPACES
            for x in (before[-1], after[2])
        )

    add_long(vocab["[CLS]"], 1, -1)
    long_places.append(None)
    add_global(vocab["[CLS]"], 8)
    end()
    for token in tokenizer(question):
        if (
            len(long_places) < long_length
            and len(global_places) < global_length
        ):
            add_long(token, 3, add_global(vocab["[unused2]"], 5))
            long_places.append(None)
    end()

    number = 0
    for paragraph, (title, sentences) in enumerate(context):
        own = None
        if len(global_places) < global_length:
            own = add_global(vocab["[unused4]"], 7, Place(paragraph, -1))
        for segment, text in enumerate([title, *sentences]):
            tokens = tokenizer.with_offsets(text)
            if (
                len(long_places) + len(tokens) <= long_length
                and len(global_places) < global_length
            ):
                place = Place(paragraph, segment)
                sentence = add_global(vocab["[unused0]"], 0, place, number)
                in_bytes = byte_offsets(text)
                last = None
                for token, start, after in tokens:
                    is_inside = last is not None and joins(last, token)
                    features["long_word_cuts"][-1] += 2 * is_inside
                    last = token
                    add_long(
                        token,
                        1 if segment else 2,
                        sentence,
                        own,
                        (in_bytes[start], in_bytes[after]),
                    )
                    features["long_word_cuts"][-1] += is_inside
                    long_places.append(Place(paragraph, segment, start, after))
            number += 1
        end()
    return Converted(features, long_places, global_places)


def make_features(record, tokenizer, config) -> dict[str, list[int]]:
    """Features of one record.

    Args:
        record: the `HotpotQARecord`.
        tokenizer: a `BertTokenizer`.
        config: the `HotpotQAPreprocessingConfig`.

    Returns:
        The features, <int>[long_length] and <int>[global_length].
    """
    made = _convert_record(record, tokenizer, config)
    return _padded(made.features, config)


def _context(record) -> list[tuple[str, list[str]]]:
    """Paragraphs without the empty sentences at their ends."""
    context = []
    for paragraph in record.context:
        sentences = list(paragraph.sentences)
        while sentences and not sentences[-1]:
            sentences.pop()
        context.append((paragraph.title, sentences))
    return context


def _convert_record(record, tokenizer, config) -> Converted:
    return convert(
        record.question,
        _context(record),
        tokenizer,
        config.long_length,
        config.global_length,
    )


def _padded(features, config) -> dict[str, list[int]]:
    """Features at their full lengths."""
    result = {}
    for name, values in features.items():
        length = config.global_length
        if name.startswith("long"):
            length = config.long_length
        result[name] = values + [PADDING[name]] * (length - len(values))
    return result


def find_answer(
    texts: Sequence[str], answer: str
) -> list[tuple[int, int, int]]:
    """Where an answer stands: as a word, if anywhere, and as it is written.

    Args:
        texts: where to search.
        answer: what to search for.

    Returns:
        The text, the first character and the one after the last one, of
        occurrences that do not overlap.
    """
    answer = answer.strip()
    if not answer:
        return []
    words, everywhere = _find_as_written(texts, answer)
    any_words, any_where = _find_as_written(
        [*map(_lower, texts)], _lower(answer)
    )
    return words or any_words or everywhere or any_where


def _lower(text: str) -> str:
    """Without capitals, but for those that a small one would not fit."""
    return "".join(
        small if len(small.encode()) == len(char.encode()) else char
        for char, small in ((char, char.lower()) for char in text)
    )


def _find_as_written(
    texts: Sequence[str], answer: str
) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """Occurrences between words, and all."""
    everywhere, words = [], []
    for index, text in enumerate(texts):
        for match in re.finditer(re.escape(answer), text):
            start, end = match.span()
            everywhere.append((index, start, end))
            before, after = text[:start][-1:], text[end:][:1]
            if not (
                before.isalnum()
                and answer[0].isalnum()
                or after.isalnum()
                and answer[-1].isalnum()
            ):
                words.append((index, start, end))
    return words, everywhere


def find_facts(record) -> list[tuple[int, int]]:
    """Paragraph and sentence of the supporting facts that there are."""
    facts = set()
    for title, sentence in record.supporting_facts:
        for index, paragraph in enumerate(record.context):
            if paragraph.title == title and sentence in range(
                len(paragraph.sentences)
            ):
                facts.add((index, sentence))
                break
    return sorted(facts)


def make_labels(record, made: Converted) -> dict[str, list[int]]:
    """What is to be learned of a record.

    Args:
        record: the `HotpotQARecord`, with its answer.
        made: its features.

    Returns:
        For each global token whether it is a supporting fact, -1 if it cannot
        be one; the type of the answer; first and last token of every
        occurrence of it.
    """
    facts = find_facts(record)
    fact_paragraphs = sorted({paragraph for paragraph, _ in facts})
    supporting_facts = []
    for place in made.global_places:
        if place is None:
            supporting_facts.append(-1)
        elif place.segment <= 0:
            supporting_facts.append(int(place.paragraph in fact_paragraphs))
        else:
            fact = place.paragraph, place.segment - 1
            supporting_facts.append(int(fact in facts))
    begins, ends = [], []
    answer_type = {"yes": 1, "no": 2}.get(record.answer, 0)
    if answer_type == 0:
        # Title, then sentences, of each paragraph.
        searched = []
        for paragraph in fact_paragraphs:
            searched.append((paragraph, 0))
            searched += [(p, s + 1) for p, s in facts if p == paragraph]
        texts = []
        for p, segment in searched:
            paragraph = record.context[p]
            texts.append([paragraph.title, *paragraph.sentences][segment])
        for index, start, end in find_answer(texts, record.answer):
            tokens = [
                i
                for i, place in enumerate(made.long_places)
                if place is not None
                and (place.paragraph, place.segment) == searched[index]
                and place.start < end
                and place.end > start
            ]
            if tokens:
                begins.append(tokens[0])
                ends.append(tokens[-1])
    return {
        "supporting_facts": supporting_facts,
        "answer_type": [answer_type],
        "answer_begins": begins,
        "answer_ends": ends,
    }


def encode(record, tokenizer, config) -> list[bytes]:
    """What is stored of one record, for training.

    Args:
        record: the `HotpotQARecord`, with its answer.
        tokenizer: a `BertTokenizer`.
        config: the `HotpotQAPreprocessingConfig`.

    Returns:
        One serialized example; none if there is nothing to learn from it: no
        supporting fact, or an answer that is not in the input.
    """
    made = _convert_record(record, tokenizer, config)
    labels = make_labels(record, made)
    if 1 not in labels["supporting_facts"] or not (
        labels["answer_begins"] or labels["answer_type"] != [0]
    ):
        return []
    values: dict[str, Any] = _padded(made.features, config)
    context = _context(record)
    values.update(
        labels,
        example_id=[record.id],
        question=[record.question],
        reference=[
            to_json(
                [
                    [record.answer, record.supporting_facts],
                    [paragraph.title for paragraph in record.context],
                ]
            )
        ],
        segments=[x for title, texts in context for x in (title, *texts)],
        paragraph_sizes=[1 + len(texts) for _, texts in context],
    )
    return [to_example(values)]
