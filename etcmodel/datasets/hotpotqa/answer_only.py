"""Reads HotpotQA's questions as ones about a single text.

Supporting facts are not predicted. ReadTwice reads each paragraph separately
and without its title (ReadTwice paper, Appendix C.2).
"""

import dataclasses
from collections.abc import Mapping
from typing import IO

from etcmodel.datasets.hotpotqa import metrics
from etcmodel.datasets.hotpotqa import predictions as official
from etcmodel.datasets.hotpotqa import records


class ReadingRecord(records.HotpotQARecord, frozen=True, rename={"id": "_id"}):
    """One question about a text of several paragraphs."""

    @property
    def text(self) -> str:
        """The paragraphs, with an empty line between them."""
        return "\n\n".join(
            " ".join("".join(x.sentences).split()) for x in self.context
        )

    @property
    def answers(self) -> tuple[str, ...] | None:
        """The answer; None if the file has none."""
        return None if self.answer is None else (self.answer,)

    @property
    def supporting_parts(self) -> tuple[int, ...] | None:
        """Indices of the paragraphs with a supporting fact; None if unknown.

        A fact's title identifies the paragraph: some official facts name a
        sentence that the paragraph lacks. If several paragraphs have the title,
        the first one that has the sentence counts, or else the first one.
        """
        if not self.supporting_facts:
            return None
        titles = [x.title for x in self.context]
        parts = {x for x, _ in self.fact_positions}
        named = {x for x, _ in self.supporting_facts or ()}
        missing = named - {titles[x] for x in parts}
        parts |= {titles.index(x) for x in missing if x in titles}
        return tuple(sorted(parts))


# In this format, supporting facts are optional.
FORMAT = dataclasses.replace(
    records.FORMAT, record=ReadingRecord, check=records.check_answer
)


def gold(record: ReadingRecord) -> str | None:
    """Returns the right answer; None if the file has none."""
    return record.answer


def write_predictions(predictions: Mapping[str, str], stream: IO[str]) -> None:
    """Writes `{"answer": {id: text}, "sp": {id: []}}`."""
    official.write_predictions(
        {key: (answer, ()) for key, answer in predictions.items()}, stream
    )


def score(
    predictions: Mapping[str, str], gold: Mapping[str, str]
) -> dict[str, float]:
    """Computes the official answer metrics `em`, `f1`, `prec`, `recall`."""
    scores = metrics.evaluate(
        predictions, {}, {key: (answer, ()) for key, answer in gold.items()}
    )
    return {name: scores[name] for name in ("em", "f1", "prec", "recall")}
