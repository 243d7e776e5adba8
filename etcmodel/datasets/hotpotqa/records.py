"""Reads the official HotpotQA JSON files.

Source: https://hotpotqa.github.io; Yang et al., "HotpotQA: A Dataset for
Diverse, Explainable Multi-hop Question Answering", 2018. 2WikiMultihopQA has
the same format.
"""

from typing import Annotated

import msgspec

from etcmodel.datasets.normalized_texts import normalize
from etcmodel.readers.json_stream import read_json_array
from etcmodel.readers.records import Format
from etcmodel.readers.records import Record
from etcmodel.readers.records import Source
from etcmodel.readers.records import Text


class Paragraph(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True
):
    """A paragraph: the beginning of a Wikipedia article.

    Sentences are as in the file; most start with a space.
    """

    title: str
    sentences: tuple[str, ...]


_Paragraph = Annotated[
    Paragraph, msgspec.Meta(description="[title, [sentence, ...]]")
]
_SentenceNumber = Annotated[
    int,
    msgspec.Meta(
        ge=0, description="a whole number: a sentence's index, from 0"
    ),
]
_Fact = Annotated[
    tuple[str, _SentenceNumber],
    msgspec.Meta(description="[title, number of the sentence]"),
]


class HotpotQARecord(Record, frozen=True, rename={"id": "_id"}):
    """One question about a set of paragraphs.

    Attributes:
        answer: a part of the text, "yes" or "no"; None if the file has none.
        supporting_facts: the sentences that the answer follows from, as pairs
            of title and sentence index; None if the file has none. If a title
            equals that of a paragraph only after normalization (see
            `normalized_texts`), it is replaced by the paragraph's title.
        type: type of the question, such as "bridge"; empty if unknown.
        level: difficulty, such as "hard"; empty if unknown.
    """

    id: Text
    question: Text
    context: tuple[_Paragraph, ...]
    answer: str | None = None
    supporting_facts: tuple[_Fact, ...] | None = None
    type: str = ""
    level: str = ""

    def _find_facts(self) -> list[tuple[int, int] | None]:
        """Returns the position of each fact; None if the context lacks it."""
        return [
            next(
                (
                    (index, number)
                    for index, paragraph in enumerate(self.context)
                    if paragraph.title == title
                    and 0 <= number < len(paragraph.sentences)
                ),
                None,
            )
            for title, number in self.supporting_facts or ()
        ]

    @property
    def fact_positions(self) -> tuple[tuple[int, int], ...]:
        """Paragraph and sentence index of each supporting fact.

        Positions are in the order of the file, without repetitions. Facts that
        the context lacks, as in some official files, are left out. If several
        paragraphs have the title, the first one with the sentence counts.
        """
        return tuple(dict.fromkeys(filter(None, self._find_facts())))

    @property
    def num_missing_facts(self) -> int:
        """Number of supporting facts that the context lacks."""
        return self._find_facts().count(None)


def _make(record: HotpotQARecord, source: Source) -> HotpotQARecord:
    """Replaces the titles of supporting facts by those of the context."""
    msgspec.structs.force_setattr(record, "source", source)
    titles = {x.title for x in record.context}
    if any(title not in titles for title, _ in record.supporting_facts or ()):
        by_form = {normalize(x).strip(): x for x in titles}
        by_form |= {x: x for x in titles}
        facts = tuple(
            (by_form.get(x, by_form.get(normalize(x).strip(), x)), number)
            for x, number in record.supporting_facts
        )
        msgspec.structs.force_setattr(record, "supporting_facts", facts)
    return record


def check_answer(record: HotpotQARecord, split: str) -> None:
    """Checks that a record has text for training and an answer to learn.

    Records of the split "predict" need neither.
    """
    if split == "predict":
        return
    if split == "train" and not any(
        any(map(str.strip, paragraph.sentences)) for paragraph in record.context
    ):
        raise record.error(
            "no sentences with text",
            field="context",
            problem=(
                f"none of its {len(record.context)} paragraphs has any text, "
                "expected at least one"
            ),
        )
    if not (record.answer or "").strip():
        raise record.missing_answer("answer", "answer", record.answer, split)


def _check(record: HotpotQARecord, split: str) -> None:
    check_answer(record, split)
    if split != "predict" and not record.supporting_facts:
        raise record.missing_answer(
            "supporting facts",
            "supporting_facts",
            record.supporting_facts,
            split,
            "Add them, or use `task=read_twice_hotpotqa`, which learns answers "
            "without them",
        )


FORMAT = Format(
    HotpotQARecord,
    'a HotpotQA record {"_id": "...", "question": "...", "context": '
    '[["title", ["sentence", ...]], ...], "answer": "...", '
    '"supporting_facts": [["title", 0], ...]}',
    read_json_array,
    _check,
    _make,
    id_field="_id",
)
