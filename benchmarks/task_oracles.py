"""What tasks store of a record for training, in plain Python.

Each task gives its units to `layout_oracle` and reads its labels from the
layout, as the original code does by its description. In these the package
differs from the original, and the oracles follow the package:

*   HotpotQA: global tokens have types; all occurrences of the answer are
    stored, of words rather than parts of them, extended to whole words, and
    only of sentences in the input; empty sentences at the end of a paragraph
    do not count.
*   Natural Questions: there is no global token for what follows the last
    candidate; separators are linked to no global token; tokens have the types
    of the other tasks; an answer may begin or end with words that have no
    tokens; yes and no are learned only where an end of the long answer is
    seen. Windows are not sampled.
*   Text that evaluation and decoding need is stored, too.
"""

import heapq
import itertools
import re
import unicodedata
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks import layout_oracle
from benchmarks.layout_oracle import END
from benchmarks.layout_oracle import Layout
from benchmarks.layout_oracle import Oracle
from benchmarks.layout_oracle import Unit
from benchmarks.layout_oracle import to_json
from benchmarks.reference_tokenizer import BertTokenizer
from benchmarks.reference_tokenizer import Token
from etcmodel.feature_utils.text import word_cuts

_COMMON = (
    "long_token_ids long_token_type_ids long_sentence_ids "
    "long_paragraph_breakpoints global_token_ids global_token_type_ids "
    "global_paragraph_breakpoints"
).split()
_LINKS = ["l2g_linked_ids", "l2g_linked_ids_2", "l2g_linked_ids_3"]
# Task -> its features.
FEATURES = {
    "hotpotqa": _COMMON
    + "long_paragraph_ids long_starts long_ends long_word_cuts".split()
    + ["global_units"],
    "nq": [*_COMMON, "words"],
    "wikihop": [*_COMMON, "long_paragraph_ids", *_LINKS],
}
# Ids of BERT's vocabulary.
_UNUSED = {f"[unused{i}]": 1 + i for i in range(5)}


def _tokens_of(
    token_ids: Sequence[int], token_type: int, global_id: int
) -> Iterator[Unit]:
    """Yields a query's tokens, each with a global token of its own."""
    for token in token_ids:
        yield Unit([token], token_type, global_id, 5)


def byte_offsets(text: str) -> list[int]:
    """Returns where each character starts as UTF-8, and the end."""
    sizes = (len(char.encode()) for char in text)
    return [*itertools.accumulate(sizes, initial=0)]


def _lay_out_hotpotqa(record, tokenizer, config) -> list[Layout]:
    """A unit's key is its paragraph, and the number of its text in it.

    The title is number 0, then sentences follow; -1 is the paragraph itself.
    """
    return [
        layout_oracle.lay_out(
            _hotpotqa_units(record, tokenizer),
            FEATURES["hotpotqa"],
            config.long_length,
            config.global_length,
        )
    ]


def _store_hotpotqa(record, layouts: Sequence[Layout]) -> list[dict]:
    """There must be a supporting fact, and the answer, in the input."""
    (layout,) = layouts
    labels = _hotpotqa_labels(record, layout)
    if 1 not in labels["supporting_facts"] or not (
        labels["answer_begins"] or labels["answer_type"] != [0]
    ):
        return []
    context = _hotpotqa_context(record)
    gold = [record.answer, record.supporting_facts]
    return [
        {
            **labels,
            "example_id": [record.id],
            "question": [record.question],
            "gold": [to_json(gold)],
            "titles": [paragraph.title for paragraph in record.context],
            "units": [x for texts in context for x in texts],
            "paragraph_sizes": [len(texts) for texts in context],
        }
    ]


def _hotpotqa_context(record) -> list[list[str]]:
    """Paragraphs, without the empty sentences at their ends."""
    context = []
    for paragraph in record.context:
        sentences = list(paragraph.sentences)
        while sentences and not sentences[-1]:
            sentences.pop()
        context.append([paragraph.title, *sentences])
    return context


def _hotpotqa_units(record, tokenizer) -> Iterator[Unit]:
    vocab = tokenizer.vocab
    cls = vocab["[CLS]"]
    yield Unit([cls], 1, cls, 8, is_linked=False)
    yield END
    question = tokenizer(record.question)
    yield from _tokens_of(question, 3, vocab["[unused2]"])
    yield END
    number = itertools.count()
    for paragraph, texts in enumerate(_hotpotqa_context(record)):
        own = (vocab["[unused4]"], 7)
        yield Unit((), -1, *own, is_group=True, key=(paragraph, -1))
        for segment, text in enumerate(texts):
            tokens = tokenizer.with_offsets(text)
            offsets = byte_offsets(text)
            yield Unit(
                [x.id for x in tokens],
                1 if segment else 2,
                vocab["[unused0]"],
                0,
                columns={
                    "long_starts": [offsets[x.start] for x in tokens],
                    "long_ends": [offsets[x.end] for x in tokens],
                    "long_word_cuts": _word_cuts(tokens, tokenizer.tokens),
                },
                global_columns={"global_units": next(number)},
                key=(paragraph, segment),
                spans=[(x.start, x.end) for x in tokens],
            )
        yield END


def _word_cuts(tokens: Sequence[Token], names: Sequence[str]) -> list[int]:
    """1 for a token that continues a word, 2 for one that is continued."""
    cuts = [0] * len(tokens)
    for i in range(1, len(tokens)):
        before, after = names[tokens[i - 1].id], names[tokens[i].id]
        if after.startswith("##") and all(
            unicodedata.category(x)[0] in "LMN"
            and unicodedata.name(x, "").partition(" ")[0]
            not in word_cuts.WITHOUT_SPACES
            for x in (before[-1], after[2])
        ):
            cuts[i - 1] += 2
            cuts[i] += 1
    return cuts


def find_answer(
    texts: Sequence[str], answer: str
) -> list[tuple[int, int, int]]:
    """Finds an answer: as a word, if anywhere, and as it is written.

    Returns:
        Text, first character and the one after the last, of occurrences that
        do not overlap.
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
    """Lower case, but for characters whose size in bytes would change."""
    return "".join(
        small if len(small.encode()) == len(char.encode()) else char
        for char, small in ((char, char.lower()) for char in text)
    )


def _find_as_written(texts, answer):
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


def _find_facts(record) -> list[tuple[int, int]]:
    """Paragraph and sentence of the supporting facts that exist."""
    facts = set()
    for title, sentence in record.supporting_facts:
        for index, paragraph in enumerate(record.context):
            if paragraph.title == title and sentence in range(
                len(paragraph.sentences)
            ):
                facts.add((index, sentence + 1))
                break
    return sorted(facts)


def _hotpotqa_labels(record, layout: Layout) -> dict[str, list[int]]:
    facts = _find_facts(record)
    fact_paragraphs = sorted({paragraph for paragraph, _ in facts})
    supporting_facts = []
    for unit in layout.global_owners:
        if unit.key is None:
            supporting_facts.append(-1)
        elif unit.key[1] <= 0:
            supporting_facts.append(int(unit.key[0] in fact_paragraphs))
        else:
            supporting_facts.append(int(unit.key in facts))
    begins, ends = [], []
    cuts = layout.columns["long_word_cuts"]
    answer_type = {"yes": 1, "no": 2}.get(record.answer.strip().lower(), 0)
    if answer_type == 0:
        # Titles come before the sentences of their paragraphs.
        searched = sorted({*facts, *((p, 0) for p in fact_paragraphs)})
        texts = []
        for paragraph, segment in searched:
            context = record.context[paragraph]
            texts.append([context.title, *context.sentences][segment])
        for index, start, end in find_answer(texts, record.answer):
            tokens = [
                position
                for position, (unit, i) in enumerate(layout.long_owners)
                if unit.key == searched[index]
                and unit.spans[i][0] < end
                and unit.spans[i][1] > start
            ]
            if tokens:
                first, last = tokens[0], tokens[-1]
                # To whole words, as far as they are in the input.
                while cuts[first] % 2:
                    first -= 1
                while cuts[last] >= 2:
                    last += 1
                begins.append(first)
                ends.append(last)
    return {
        "supporting_facts": supporting_facts,
        "answer_type": [answer_type],
        "answer_begins": begins,
        "answer_ends": ends,
    }


class Piece(NamedTuple):
    """A token of a page, its word, and the long-answer candidate around it."""

    token: int
    word: int
    candidate: int


class _Window(NamedTuple):
    """The pieces of a page, and which of them a window shows.

    The window shows `size` pieces from `start` on, at its token `page`.
    """

    pieces: Sequence[Piece]
    start: int
    size: int
    page: int


def _nq_pieces(record, tokenizer: BertTokenizer, html: bool) -> list[Piece]:
    """Tokens of a page, of what lies in a top-level candidate."""
    opens, closes = (
        tokenizer.vocab.get(f"[unused{i}]", -1) for i in (102, 103)
    )
    pieces = []
    candidates = [x for x in record.candidates if x.top_level]
    for index, candidate in enumerate(candidates):
        for word in range(candidate.start, candidate.end):
            text = record.tokens[word]
            if not record.is_html[word]:
                for token in tokenizer(text):
                    pieces.append(Piece(token, word, index))
            elif html:
                tag = closes if text.startswith("</") else opens
                pieces.append(Piece(tag, word, index))
    return pieces


def nq_units(
    question: Sequence[int], pieces: Sequence[Piece], vocab: Mapping[str, int]
) -> Iterator[Unit]:
    """Yields the units of one window, which shows these pieces.

    Candidates without room share the last global token.
    """
    yield Unit([vocab["[CLS]"]], 1, vocab["[CLS]"], 8)
    yield from _tokens_of(question, 3, vocab["[unused2]"])
    yield Unit([vocab["[SEP]"]], 3)
    for _, group in itertools.groupby(pieces, lambda x: x.candidate):
        shown = list(group)
        yield Unit(
            [x.token for x in shown],
            1,
            vocab["[unused0]"],
            0,
            shares=True,
            columns={"words": [x.word for x in shown]},
        )
    yield Unit([vocab["[SEP]"]], 3)
    yield END


def _lay_out_nq(record, tokenizer, config) -> list[Layout]:
    """Windows of a page."""
    pieces = _nq_pieces(record, tokenizer, config.include_html_tokens)
    question = tokenizer(record.question)[: config.question_length]
    # Beside a CLS and two separators.
    room = config.long_length - len(question) - 3
    layouts = []
    end = max(len(pieces) - room, 0) + config.stride
    for start in range(0, end, config.stride):
        shown = pieces[start : start + room]
        layout = layout_oracle.lay_out(
            nq_units(question, shown, tokenizer.vocab),
            FEATURES["nq"],
            config.long_length,
            config.global_length,
        )
        layout.source = _Window(pieces, start, len(shown), len(question) + 2)
        layouts.append(layout)
    return layouts


def _store_nq(record, layouts: Sequence[Layout]) -> list[dict]:
    annotations = record.annotations
    gold = {
        "long_answers": [(x.long_start, x.long_end) for x in annotations],
        "short_answers": [x.short_answers for x in annotations],
        "yes_no": [x.yes_no for x in annotations],
    }
    return [
        {
            **_nq_labels(annotations[0], layout.source),
            "example_id": [record.id],
            "question": [record.question],
            "candidate_starts": [x.start for x in record.candidates],
            "candidate_ends": [x.end for x in record.candidates],
            "gold": [to_json(gold)],
            # Not stored where it is the only one.
            "window": [i] if len(layouts) > 1 else [],
        }
        for i, layout in enumerate(layouts)
    ]


def _nq_span(pieces, start, end):
    """First and last token of a span of words; -1 if it has none."""
    inside = [i for i, x in enumerate(pieces) if start <= x.word < end]
    return (inside[0], inside[-1]) if inside and start >= 0 else (-1, -1)


def _nq_labels(annotation, window: _Window) -> dict[str, list[int]]:
    """Ends of the answers, 0 where the window does not show them; the type."""
    null, yes, no, long, short = range(5)
    kind = null
    if annotation.yes_no != "none":
        kind = yes if annotation.yes_no == "yes" else no
    elif annotation.short_answers:
        kind = short
    elif annotation.long_start >= 0:
        kind = long
    tokens = (-1, -1)
    if annotation.short_answers:
        starts, ends = zip(*annotation.short_answers, strict=True)
        tokens = _nq_span(window.pieces, min(starts), max(ends))
    long_answer = (annotation.long_start, annotation.long_end)
    tokens += _nq_span(window.pieces, *long_answer)
    positions = []
    for token in tokens:
        index = token - window.start
        is_shown = token >= 0 and 0 <= index < window.size
        positions.append(window.page + index if is_shown else 0)
    sought = positions[:2] if kind == short else positions[2:]
    return {
        "short_answer_start": [positions[0]],
        "short_answer_end": [positions[1]],
        "long_answer_start": [positions[2]],
        "long_answer_end": [positions[3]],
        "answer_type": [kind if any(sought) else null],
    }


def split_sentences(text: str) -> list[str]:
    """Splits a text by a simple rule."""
    parts = re.split(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])", text.strip())
    return [x for x in parts if x]


def truncate(
    documents: Sequence[Sequence[int]], max_sentences: int, max_tokens: int
) -> list[int]:
    """Counts the sentences of each document that are kept.

    The document with the most sentences loses its last one, again and again.

    Args:
        documents: numbers of tokens of the sentences of each document.
        max_sentences: the most sentences.
        max_tokens: the most tokens.

    Returns:
        A number for each document.
    """
    kept = [len(document) for document in documents]
    sentences = sum(kept)
    tokens = sum(sum(document) for document in documents)
    # The most sentences first, among equals what was pushed first.
    pushed = len(kept)
    heap = [(-count, i, i) for i, count in enumerate(kept)]
    heapq.heapify(heap)
    while sentences > max_sentences or tokens > max_tokens:
        _, _, i = heapq.heappop(heap)
        kept[i] -= 1
        sentences -= 1
        tokens -= documents[i][kept[i]]
        heapq.heappush(heap, (-kept[i], pushed, i))
        pushed += 1
    return kept


def find_mentions(
    text: str, candidate: str, tokenize: Callable[[str], list[int]]
) -> list[tuple[int, int]]:
    """Finds a candidate's tokens in a text, as (first, last)."""
    candidate = candidate.lower()
    if candidate not in text.lower():
        return []
    tokens = tokenize(text)
    sought = tokenize(candidate)
    return [
        (i, i + len(sought) - 1)
        for i in range(len(tokens) - len(sought) + 1)
        if sought and tokens[i : i + len(sought)] == sought
    ]


def lay_out_wikihop(
    query: str,
    candidates: Sequence[str],
    supports: Sequence[str],
    tokenize: Callable[[str], list[int]],
    split: Callable[[str], list[str]] = split_sentences,
    long_length: int = 4096,
    global_length: int = 430,
    max_sentences: int = 200,
) -> Layout:
    """Lays out a record, with the tokens and sentences of any functions."""
    candidates = [candidate.strip().lower() for candidate in candidates]
    first = [tokenize(x) for x in candidates]
    question = tokenize(query)
    # A sentence that is alone too long is cropped.
    room = long_length - sum(map(len, [*first, question]))
    documents = [
        [(x, tokenize(x)[:room]) for x in split(support)]
        for support in supports
    ]
    kept = truncate(
        [[len(ids) for _, ids in document] for document in documents],
        max_sentences,
        room,
    )

    def units():
        for i, ids in enumerate(first):
            columns = {_LINKS[0]: [i] * len(ids)}
            yield Unit(ids, 4, _UNUSED["[unused3]"], 6, columns=columns)
            yield END
        yield from _tokens_of(question, 3, _UNUSED["[unused2]"])
        yield END
        for document, count in zip(documents, kept, strict=True):
            yield Unit((), -1, _UNUSED["[unused4]"], 7, is_group=True)
            for sentence, ids in document[:count]:
                links = _links(sentence, candidates, tokenize, len(ids))
                yield Unit(ids, 1, _UNUSED["[unused0]"], 0, columns=links)
            yield END

    return layout_oracle.lay_out(
        units(), FEATURES["wikihop"], long_length, global_length
    )


def _links(sentence, candidates, tokenize, number) -> dict[str, list[int]]:
    """Candidates that each token mentions, of more than three the last."""
    links = [set() for _ in range(number)]
    for i, candidate in enumerate(candidates):
        if candidate in candidates[:i]:
            continue
        for first, last in find_mentions(sentence, candidate, tokenize):
            for found in links[first : last + 1]:
                found.add(i)
    ordered = [[*sorted(found, reverse=True), -1, -1, -1] for found in links]
    return {name: [x[i] for x in ordered] for i, name in enumerate(_LINKS)}


def _store_wikihop(record, layouts: Sequence[Layout]) -> list[dict]:
    candidates = [x.strip().lower() for x in record.candidates]
    label = candidates.index(record.answer.strip().lower())
    return [
        {
            "example_id": [record.id],
            "query": [record.query],
            "candidates": record.candidates,
            "label_id": [float(label)],
            "gold": [to_json(record.answer)],
        }
        for _ in layouts
    ]


ORACLES = {
    "hotpotqa": Oracle(_lay_out_hotpotqa, _store_hotpotqa),
    "nq": Oracle(_lay_out_nq, _store_nq),
    "wikihop": Oracle(
        lambda record, tokenizer, config: [
            lay_out_wikihop(
                record.query,
                record.candidates,
                record.supports,
                tokenizer,
                long_length=config.long_length,
                global_length=config.global_length,
                max_sentences=config.max_num_sentences,
            )
        ],
        _store_wikihop,
    ),
}
