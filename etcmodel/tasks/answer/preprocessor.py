"""Question answering: turns documents into features, and labels answers."""

from etcmodel.datasets import unit_positions
from etcmodel.datasets.answer_spans import find_answers
from etcmodel.feature_utils import layout
from etcmodel.feature_utils.text import word_cuts
from etcmodel.pipeline import example_schema
from etcmodel.pipeline.preprocessor import Encoded
from etcmodel.pipeline.preprocessor import Labelled
from etcmodel.tasks.documents import document_units
from etcmodel.tasks.documents import documents
from etcmodel.tasks.documents import span_decoding
from etcmodel.tasks.documents.span_labels import SpanFinder

_TYPES = {
    "span": span_decoding.SPAN,
    "yes": span_decoding.YES,
    "no": span_decoding.NO,
    "none": span_decoding.NONE,
}


class AnswerPreprocessor(documents.DocumentPreprocessor):
    """Turns questions and documents into features."""

    QUERY_LEVEL = "token"
    NEEDS_QUERY = True
    VALUES = (
        document_units.unit_value("document"),
        *span_decoding.values("document"),
    )
    SCHEMA = example_schema.etc_schema(
        **document_units.FIELDS, **span_decoding.FIELDS, **span_decoding.LABELS
    )

    def encode(self, query, units):
        """Builds the features of queries and units."""
        ids, starts, ends = self.tokenizer.tokenize_with_offsets(units.texts)
        made = self.lay_out(
            query,
            ids,
            global_units=layout.unit_indices(units.texts, "unit"),
            long_starts=starts,
            long_ends=ends,
            long_word_cuts=word_cuts.find_word_cuts(self.tokenizer, ids),
        )
        return Encoded(made, made.values, document_units.describe_units(*units))

    def labels(self, record, view, split):
        """Returns the labels and counts of a record."""
        counts = self.count(record, view)
        if record.answers is None or split == "predict":
            return Labelled([{}], {}, counts)
        section = self.engine.spec.index("document")
        units = document_units.list_units(view.text)
        labelled = _find_evidence(record, units)
        found, num_moved = find_spans(record, units, labelled)
        found = list(dict.fromkeys(found))
        finder = SpanFinder(
            section,
            view.long_sources[0],
            {name: view.features[name][0] for name in span_decoding.FIELDS},
        )
        # Index of each paragraph's first unit. Units of a group include the
        # title.
        first = {}
        for i, unit in enumerate(units):
            first.setdefault(unit.paragraph, i)
        kept = finder.find_all(
            (
                units[i].paragraph,
                i - first[units[i].paragraph],
                units[i].content,
                start,
                end,
            )
            for i, start, end in found
        )
        evidence = labelled
        if evidence is None and self.config.evidence == "answer":
            evidence = _guess_evidence(record, units, found)
        is_evidence, kept_evidence = [-1] * len(view.global_sources[0]), 0
        if evidence is not None:
            is_evidence, kept_evidence = document_units.label_globals(
                view, section, evidence
            )
        answer_type = _TYPES[record.answer_type]
        is_span = answer_type == span_decoding.SPAN
        counts |= {
            "answers_cut": int(bool(is_span and found and not kept.begins)),
            "answers_moved": record.answers_moved + num_moved,
            "answers_with_more_text": int(
                kept.num_inexact == len(kept.begins) > 0
            ),
            "answers_in_no_unit": int(is_span and not found),
            "answers_yes_or_no": int(record.answer_type in ("yes", "no")),
            "no_answers": int(record.answer_type == "none"),
            "evidence": len(evidence or ()),
            "evidence_cut": len(evidence or ()) - kept_evidence,
        }
        learned = {
            "supporting_facts": is_evidence,
            "answer_type": answer_type,
            "answer_begins": kept.begins,
            "answer_ends": kept.ends,
        }
        is_kept = split != "train" or kept.begins or not is_span
        return Labelled([learned if is_kept else None], {}, counts)

    def describe(self, record):
        """Lists the names and values that `inspect` shows."""
        answers = [x.text for x in record.answers or ()]
        told = "unknown" if record.answers is None else "none"
        return [*super().describe(record), ("answer", answers or told)]


def _find_evidence(record, units) -> set[int] | None:
    """Returns the indices of labelled evidence; None if it is not labelled."""
    if record.evidence is None:
        return None
    right = unit_positions.right_positions(
        unit_positions.Selected(record.evidence, record.evidence_texts),
        [x for x in units if x.text >= 0],
    )
    return {i for i, x in enumerate(units) if x[:2] in right}


def _guess_evidence(record, units, spans) -> set[int] | None:
    """Returns the units that contain the answer; None if there are none."""
    if not spans and record.answer_type != "none":
        return None
    return {i for i, *_ in spans if units[i].text >= 0}


def find_spans(
    record, units, evidence=None
) -> tuple[list[tuple[int, int, int]], int]:
    """Finds the answers of a record in its units.

    An answer with a known place inside one unit is labelled there. Any other
    answer is labelled at all its occurrences in evidence or, if there are none,
    at all its occurrences.

    Args:
        record: a record of `datasets.question_answering`.
        units: from `document_units.list_units`.
        evidence: indices of the units of evidence; None if unknown.

    Returns:
        Unit, first byte and exclusive end of each place, in the order of the
        answers; and the number of answers that moved: no unit contains their
        given place, but they occur elsewhere.
    """
    if record.answer_type != "span":
        return [], 0
    found, num_moved = [], 0
    for answer in record.answers:
        at_place = answer.place and _find_place(record, units, answer.place)
        if at_place:
            found.append(at_place)
            continue
        places = find_answers([x.content for x in units], [answer.text])
        inside = [x for x in places if x.text in (evidence or ())]
        found += [tuple(x) for x in inside or places]
        num_moved += bool(answer.place and places)
    return found, num_moved


def _find_place(record, units, place) -> tuple[int, int, int] | None:
    """Returns a place's unit and bytes; None if it is not inside one unit."""
    paragraph = record.paragraphs[place.paragraph]
    before = sum(len(x) + 1 for x in paragraph[: place.text])
    start, end = before + place.start, before + place.end
    whole, cursor = " ".join(paragraph), 0
    for i, unit in enumerate(units):
        if unit.paragraph != place.paragraph or unit.text < 0:
            continue
        at = whole.find(unit.content, cursor)
        if at < 0:
            continue
        cursor = at + len(unit.content)
        if at <= start and end <= cursor:
            first = len(unit.content[: start - at].encode())
            length = len(unit.content[start - at : end - at].encode())
            return i, first, first + length
    return None
