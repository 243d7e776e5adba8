"""Data augmentation: more training questions from a few hundred records.

A model with BERT's weights must first learn that a question and the sentences
that answer it share entities and words. Artificial questions teach this as
well.
"""

import random
import re
from collections.abc import Collection

import msgspec

from etcmodel.datasets.hotpotqa.records import HotpotQARecord

_WORD = re.compile(r"\w[\w'-]*")
# Names and years: runs of capitalized words inside a sentence, or 1000 to 2099.
_NAME = re.compile(
    r"(?<=[a-z,] )[A-Z][\w'-]+(?: [A-Z][\w'-]+)*|\b(?:1\d|20)\d\d\b"
)
_QUESTION_WORDS = ("what", "who", "which", "when", "where")
_JOINTS = ("and", "of", "in", "that", "whose")
_MIN_WORDS = 8
_MIN_NAME = 4


def choose_paragraphs(
    record: HotpotQARecord, max_characters: int, rng: random.Random
) -> HotpotQARecord:
    """Returns a record with some of its paragraphs, in random order.

    Keeps all paragraphs with supporting facts, and adds random other paragraphs
    as long as all titles and sentences together have at most `max_characters`
    (about four per token). Such records train faster, and differ each time.

    Example: B has a supporting fact, and two of the paragraphs A, B and C fit.
    The result is A and B, B and A, B and C, or C and B.
    """
    kept = {title for title, _ in record.supporting_facts or ()}
    order = rng.sample(record.context, len(record.context))
    order.sort(key=lambda paragraph: paragraph.title not in kept)
    context, room = [], max_characters
    for paragraph in order:
        size = sum(map(len, (paragraph.title, *paragraph.sentences)))
        if size <= room or paragraph.title in kept:
            context.append(paragraph)
            room -= size
    rng.shuffle(context)
    return msgspec.structs.replace(record, context=tuple(context))


def make_pseudo_question(
    record: HotpotQARecord, rng: random.Random
) -> HotpotQARecord | None:
    """Returns a record with a question made of words of two sentences.

    This is an inverse cloze task (Lee et al., "Latent Retrieval for Weakly
    Supervised Open Domain Question Answering", 2019). The two sentences become
    the supporting facts. The question has some words of each sentence, in their
    order. The answer is a name or a year in the second sentence; it is left out
    of the question. Returns None if the record has no such sentences.

    If a sentence names another paragraph, half of the questions combine such a
    sentence with a sentence of that paragraph, and leave out the name. As in a
    two-hop question, it is then hard to find the second sentence without the
    first.

    Example: "Jan was born in 1901 in the town of Brno." and "Brno is a city in
    the region of South Moravia.", in the paragraph Brno, may give the question
    "where Jan born 1901 town whose city region?" and the answer "South
    Moravia".
    """
    context = record.context
    # Indices (paragraph, sentence) of the sentences with enough words.
    sentences = [
        (i, j)
        for i, paragraph in enumerate(context)
        for j, sentence in enumerate(paragraph.sentences)
        if len(_WORD.findall(sentence)) >= _MIN_WORDS
    ]

    def text(sentence):
        return context[sentence[0]].sentences[sentence[1]]

    names = [re.sub(r" \(.*", "", paragraph.title) for paragraph in context]
    named = [x for x in sentences if _NAME.search(text(x))]
    pairs = [(a, b) for a in sentences for b in named if a[0] != b[0]]
    if not pairs:
        return None
    linked = [
        (a, b)
        for a, b in pairs
        if len(names[b[0]]) >= _MIN_NAME and names[b[0]] in text(a)
    ]
    is_linked = bool(linked) and rng.random() < 0.5
    first, second = rng.choice(linked if is_linked else pairs)
    bridge = names[second[0]] if is_linked else ""
    answer = rng.choice(_NAME.findall(text(second)))
    parts = []
    for sentence in (first, second):
        words = _choose_words(text(sentence), (bridge, answer), rng)
        has_title = not is_linked and rng.random() < 0.5
        parts.append([names[sentence[0]], *words] if has_title else words)
    rng.shuffle(parts)
    start, joint = rng.choice(_QUESTION_WORDS), rng.choice(_JOINTS)
    return msgspec.structs.replace(
        record,
        question=" ".join([start, *parts[0], joint, *parts[1]]) + "?",
        answer=answer,
        supporting_facts=tuple(
            (context[i].title, j) for i, j in (first, second)
        ),
        type="pseudo",
    )


def _choose_words(
    text: str, left_out: Collection[str], rng: random.Random
) -> list[str]:
    for part in filter(None, left_out):
        text = text.replace(part, " ")
    share = rng.uniform(0.2, 0.6)
    return [word for word in _WORD.findall(text) if rng.random() < share]
