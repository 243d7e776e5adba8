"""Labels of a HotpotQA record (ETC paper, Appendix C)."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from etcmodel.datasets.answer_spans import find_answers
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.tasks.documents.span_decoding import NO
from etcmodel.tasks.documents.span_decoding import SPAN
from etcmodel.tasks.documents.span_decoding import YES
from etcmodel.tasks.documents.span_labels import SpanFinder

_TYPES = {"yes": YES, "no": NO}


@dataclasses.dataclass(frozen=True)
class HotpotQALabels:
    """The labels of a record.

    Attributes:
        supporting_facts: 1 or 0 for every global token; -1 for tokens that
            cannot be a fact. A paragraph and its title are facts if one of the
            paragraph's sentences is a fact.
        answer_type: 0 span, 1 yes, 2 no.
        begins, ends: first and last long token of each occurrence of the answer
            in titles of fact paragraphs and in supporting sentences.
        num_inexact: number of occurrences with more text than the answer; see
            `FoundSpans`.
        found: number of occurrences, including those that were cut.
        kept_facts: number of supporting sentences that were not cut.
    """

    supporting_facts: list[int]
    answer_type: int
    begins: list[int]
    ends: list[int]
    num_inexact: int
    found: int
    kept_facts: int

    @property
    def can_be_learned(self) -> bool:
        """Whether the input has an answer and at least one supporting fact."""
        has_answer = self.begins or self.answer_type != SPAN
        return bool(has_answer) and 1 in self.supporting_facts


def make_labels(
    record: HotpotQARecord,
    context_section: int,
    long_sources: np.ndarray,
    global_sources: np.ndarray,
    token_places: Mapping[str, np.ndarray],
) -> HotpotQALabels:
    """Makes the labels of a record that has an answer.

    Args:
        record: a record that has an answer.
        context_section: index of the layout's section with the paragraphs.
        long_sources: `<int>[long, 4]` of `Layout`.
        global_sources: `<int>[global, 4]` of `Layout`.
        token_places: `places` of a `SpanFinder`, which finds whole words.
    """
    facts = set(record.fact_positions)
    fact_paragraphs = {paragraph for paragraph, _ in facts}
    labels = []
    kept_facts = 0
    for section, group, unit, _ in global_sources.tolist():
        if section != context_section:
            labels.append(-1)
        elif unit <= 0:
            labels.append(int(group in fact_paragraphs))
        else:
            labels.append(int((group, unit - 1) in facts))
            kept_facts += labels[-1]

    # Unit 0 of a paragraph is its title.
    places = sorted(
        [(paragraph, 0) for paragraph in fact_paragraphs]
        + [(paragraph, sentence + 1) for paragraph, sentence in facts]
    )
    texts = [
        paragraph.title if unit == 0 else paragraph.sentences[unit - 1]
        for paragraph, unit in (
            (record.context[group], unit) for group, unit in places
        )
    ]
    # Case is ignored, as in the official baseline.
    answer_type = _TYPES.get(record.answer.strip().lower(), SPAN)
    occurrences = []
    if answer_type == SPAN:
        occurrences = find_answers(texts, [record.answer])
    finder = SpanFinder(context_section, long_sources, token_places)
    spans = finder.find_all(
        (*places[i], texts[i], start, end) for i, start, end in occurrences
    )
    return HotpotQALabels(
        labels, answer_type, *spans, len(occurrences), kept_facts
    )
