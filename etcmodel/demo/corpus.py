"""Generates multi-hop questions about a fictional world, in WikiHop's format.

Every record asks which of six islands has two given trades. A record has four
trades, and each island has one of their six pairs:

    island   1   2   3   4   5   6
    has     AB  AC  AD  BC  BD  CD        asked for: A and B -> island 1

The islands differ only in their pair. A model that follows only one trade is
right in a third of the records; chance is a sixth. The two trades of an island
are in different documents.

Kinds of questions (`QUESTION_KINDS`):

*   `"fixed"`: every record asks for the same two trades, the first two of
    `world.TRADES`. A model can ignore the question.
*   `"asked"`: each record asks for different trades.
*   `"bridge"`: like `"fixed"`, but one trade of every island belongs to a
    person, and another document says on which island the person lives.

Training records and held-out records have different island names (`split`).
"""

import itertools
import json
import os
import random

from etcmodel.demo import world

QUESTION_KINDS = ("fixed", "asked", "bridge")
SPLITS = ("train", "heldout")

NUM_CANDIDATES = 6
# Chance: the accuracy of choosing one of six candidates at random.
CHANCE = 1 / NUM_CANDIDATES

_NUM_DOCUMENTS = 4
_REMARKS_PER_DOCUMENT = 2


def island_names(split: str) -> list[str]:
    """Returns the island names of a split; the two splits share no name.

    A name is a pair of words. Every fourth pair belongs to the held-out
    records, so that both splits have all words:

        island_names("train")[:2]    -> ["Aldera Holm", "Aldera Cay"]
        island_names("heldout")[:2]  -> ["Aldera Skerry", "Aldera Rock"]
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}, got {split!r}.")
    return [
        f"{word} {kind}"
        for w, word in enumerate(world.ISLAND_WORDS)
        for k, kind in enumerate(world.ISLAND_KINDS)
        if ((w + k) % 4 == 3) == (split == "heldout")
    ]


def make_query(first: world.Trade, second: world.Trade) -> str:
    """Returns a question: `"island_with lighthouse and beehives"`."""
    return f"island_with {first.name} and {second.name}"


def make_records(
    num_records: int,
    question_kind: str = "fixed",
    split: str = "train",
    seed: int = 0,
) -> list[dict]:
    """Makes records in the official WikiHop format, reproducible by seed.

    The split, `"train"` or `"heldout"`, determines the islands' names.

    Raises:
        ValueError: `num_records` is negative, or the question kind or split
            does not exist.
    """
    if num_records < 0:
        raise ValueError(f"num_records must be at least 0, got {num_records}.")
    if question_kind not in QUESTION_KINDS:
        raise ValueError(
            f"question_kind must be one of {QUESTION_KINDS}, "
            f"got {question_kind!r}."
        )
    names = island_names(split)
    # A string seeds `random` identically in every process.
    rng = random.Random(f"{question_kind}/{split}/{seed}")
    return [
        _make_record(rng, f"isles_{split}_{index}", question_kind, names)
        for index in range(num_records)
    ]


def write_records(path: str, records: list[dict]) -> None:
    """Writes records in the format of WikiHop's files: one JSON array.

    The file appears only when it is complete.
    """
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(records, file)
    os.replace(temporary, path)


def _make_record(
    rng: random.Random, record_id: str, question_kind: str, names: list[str]
) -> dict:
    islands = rng.sample(names, NUM_CANDIDATES)
    if question_kind == "asked":
        trades = rng.sample(world.TRADES, 4)
    else:
        trades = [*world.TRADES[:2], *rng.sample(world.TRADES[2:], 2)]
    # The question asks for the first pair; `islands` is in random order.
    pairs = list(itertools.combinations(trades, 2))
    asked = list(pairs[0])
    rng.shuffle(asked)

    facts = []
    people = _make_people(rng) if question_kind == "bridge" else None
    for index, (island, pair) in enumerate(zip(islands, pairs, strict=True)):
        pair = rng.sample(pair, 2)
        if people is None:
            facts.append([_tell(rng, island, trade) for trade in pair])
            continue
        person = people[index]
        residence = rng.choice(world.RESIDENCES)
        told = [_tell(rng, island, pair[0]), _tell(rng, person, pair[1])]
        facts.append([*told, residence.format(person=person, island=island)])

    candidates = [island.lower() for island in islands]
    rng.shuffle(candidates)
    return {
        "id": record_id,
        "query": make_query(*asked),
        "answer": islands[0].lower(),
        "candidates": candidates,
        "supports": _make_documents(rng, facts, islands),
    }


def _make_people(rng: random.Random) -> list[str]:
    first_names = rng.sample(world.FIRST_NAMES, NUM_CANDIDATES)
    last_names = rng.sample(world.LAST_NAMES, NUM_CANDIDATES)
    return list(map("{} {}".format, first_names, last_names))


def _tell(rng: random.Random, who: str, trade: world.Trade) -> str:
    choice = rng.randrange(len(trade.phrases) + len(trade.sayings))
    if choice < len(trade.phrases):
        frame = rng.choice(world.FRAMES)
        return frame.format(who=who, phrase=trade.phrases[choice])
    return trade.sayings[choice - len(trade.phrases)].format(who=who)


def _make_documents(
    rng: random.Random, facts: list[list[str]], islands: list[str]
) -> list[str]:
    """Distributes the facts over documents, at most one per island in each."""
    capacity = sum(map(len, facts)) / _NUM_DOCUMENTS
    while True:
        documents = [[] for _ in range(_NUM_DOCUMENTS)]
        for sentences in facts:
            places = rng.sample(range(_NUM_DOCUMENTS), len(sentences))
            for place, sentence in zip(places, sentences, strict=True):
                documents[place].append(sentence)
        if all(abs(len(d) - capacity) < 1 for d in documents):
            break

    openings = rng.sample(world.OPENINGS, _NUM_DOCUMENTS)
    remarks = world.REMARKS_ON_ONE + world.REMARKS_ON_TWO
    texts = []
    for opening, sentences in zip(openings, documents, strict=True):
        for remark in rng.sample(remarks, _REMARKS_PER_DOCUMENT):
            first, second = rng.sample(islands, 2)
            sentences.append(remark.format(first=first, second=second))
        rng.shuffle(sentences)
        texts.append(" ".join([opening, *sentences]))
    return texts
