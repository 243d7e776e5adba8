"""Reads the official HotpotQA JSON files.

Source: https://hotpotqa.github.io; Yang et al., "HotpotQA: A Dataset for
Diverse, Explainable Multi-hop Question Answering", 2018. 2WikiMultihopQA has
the same layout.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Iterator

from etcmodel.tasks.errors import BadRecords
from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.errors import show
from etcmodel.tasks.json_stream import read_json_array
from etcmodel.tasks.record_fields import RecordFields

SPLITS = ("train", "dev", "predict")

_PARAGRAPH = "[title, [sentence, ...]]"
_FACT = "[title, number of the sentence]"
_FORMAT = (
    'a HotpotQA record {"_id": "...", "question": "...", "context": '
    '[["title", ["sentence", ...]], ...], "answer": "...", '
    '"supporting_facts": [["title", 0], ...]}'
)
_USE_PREDICT = "If this file has no answers use --split=predict"


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """The beginning of a Wikipedia article.

    Attributes:
        title: of the article.
        sentences: as they stand in the file, most with a space in front.
    """

    title: str
    sentences: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class HotpotQARecord:
    """One question about a set of paragraphs.

    Attributes:
        id: unique within its file.
        question: the question.
        context: the paragraphs.
        answer: a piece of the text, or "yes", or "no"; None if the file does
            not tell.
        supporting_facts: title and number of the sentences, from 0, that the
            answer follows from, as they stand in the file; None if the file
            does not tell.
        type: of the question, such as "bridge"; empty if not told.
        level: of difficulty, such as "hard"; empty if not told.
        index: position of the record in its file, from 0.
    """

    id: str
    question: str
    context: tuple[Paragraph, ...]
    answer: str | None = None
    supporting_facts: tuple[tuple[str, int], ...] | None = None
    type: str = ""
    level: str = ""
    index: int = 0

    def _fact_position(
        self, title: str, sentence: int
    ) -> tuple[int, int] | None:
        for index, paragraph in enumerate(self.context):
            num_sentences = len(paragraph.sentences)
            if paragraph.title == title and 0 <= sentence < num_sentences:
                return index, sentence
        return None

    @property
    def fact_positions(self) -> tuple[tuple[int, int], ...]:
        """Paragraph and sentence index of the supporting facts.

        Each comes once, in the order of the file. Facts that the context does
        not have are left out: the official files have such. Of several
        paragraphs of the same title it is the first that has the sentence.
        """
        found = (
            self._fact_position(*fact) for fact in self.supporting_facts or ()
        )
        return tuple(dict.fromkeys(at for at in found if at is not None))

    @property
    def num_missing_facts(self) -> int:
        """How many supporting facts the context does not have."""
        return sum(
            self._fact_position(*fact) is None
            for fact in self.supporting_facts or ()
        )


def _context(fields: RecordFields) -> tuple[Paragraph, ...]:
    context = tuple(
        Paragraph(pair.string(0), pair.strings(1))
        for pair in fields.sequences("context", 2, _PARAGRAPH)
    )
    if not context:
        raise fields.error(
            "no paragraphs",
            field="context",
            problem="it is empty, expected at least one paragraph",
        )
    if not any(
        sentence.strip()
        for paragraph in context
        for sentence in paragraph.sentences
    ):
        raise fields.error(
            "no sentences with text",
            field="context",
            problem=(
                f"no sentence of its {len(context)} paragraphs has any text"
            ),
        )
    return context


def _supporting_facts(fields: RecordFields) -> tuple[tuple[str, int], ...]:
    facts = []
    for pair in fields.sequences("supporting_facts", 2, _FACT):
        title, sentence = pair.string(0), pair.integer(1)
        if sentence < 0:
            raise pair.error(
                "negative sentence number",
                field=1,
                problem=(
                    f"got {show(sentence)}, expected the number of a sentence, "
                    "from 0"
                ),
            )
        facts.append((title, sentence))
    return tuple(facts)


def _parse(
    path: str, index: int, value: object, split: str, seen: set[str]
) -> HotpotQARecord:
    fields = RecordFields(path, index, value, _FORMAT, id_field="_id")
    record = HotpotQARecord(
        id=fields.identifier("_id", seen),
        question=fields.string("question"),
        context=_context(fields),
        answer=fields.string("answer") if "answer" in fields else None,
        supporting_facts=(
            _supporting_facts(fields) if "supporting_facts" in fields else None
        ),
        type=fields.string("type") if "type" in fields else "",
        level=fields.string("level") if "level" in fields else "",
        index=index,
    )
    if not record.question.strip():
        raise fields.error(
            "empty question", field="question", problem="it is empty"
        )
    if split == "predict":
        return record
    if record.answer is None or not record.answer.strip():
        missing = "missing" if record.answer is None else "empty"
        raise fields.error(
            "no answer",
            field="answer",
            problem=f"it is {missing}, but the split {split!r} needs it",
            advice=_USE_PREDICT,
        )
    if not record.supporting_facts:
        missing = "missing" if record.supporting_facts is None else "empty"
        raise fields.error(
            "no supporting facts",
            field="supporting_facts",
            problem=f"it is {missing}, but the split {split!r} needs it",
            advice=_USE_PREDICT,
        )
    return record


def read_records(
    path: str,
    split: str = "train",
    bad_records: BadRecords | None = None,
    on_position: Callable[[int], None] | None = None,
) -> Iterator[HotpotQARecord]:
    """Yields the records of an official HotpotQA file one by one.

    Args:
        path: a JSON array of records, plain or gzipped.
        split: `"train"` or `"dev"` if every record must have an answer and
            supporting facts, `"predict"` if not. What a record has is read in
            any case.
        bad_records: what to do with records that cannot be used; raise, by
            default.
        on_position: called with the number of bytes read so far.

    Yields:
        The usable records in the order of the file.

    Raises:
        RecordError: a record is not a HotpotQA record: no object, a field is
            missing or of a wrong type, an id twice, an empty question, no
            paragraphs, no text in any sentence, a fact with a negative
            sentence number, bytes that are not UTF-8, or no answer or no
            supporting facts where the split needs them.
        UserError: the file cannot be read, or is no JSON array.
        ValueError: unknown split.
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}, expected one of {SPLITS}.")
    bad_records = bad_records or BadRecords()
    seen: set[str] = set()
    for index, value in read_json_array(path, on_position):
        try:
            record = _parse(path, index, value, split, seen)
        except RecordError as error:
            bad_records.report(error)
            continue
        yield record
