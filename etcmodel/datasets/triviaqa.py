"""TriviaQA: official files with their evidence, prediction files and metrics.

A record is a question with the pages that were retrieved for it. Pages are
found relative to the file of questions, with the folders of the official
archive:

    qa/wikipedia-train.json
    evidence/wikipedia/Angola.txt
    evidence/web/46/46_46.txt

Source: https://nlp.cs.washington.edu/triviaqa; Joshi et al., "TriviaQA: A Large
Scale Distantly Supervised Challenge Dataset for Reading Comprehension", 2017.
"""

import functools
import os
import string
from collections.abc import Mapping
from collections.abc import Sequence

import msgspec

from etcmodel.datasets import answer_metrics
from etcmodel.datasets.predictions import write_predictions as write_predictions
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.readers import files
from etcmodel.readers import json_stream
from etcmodel.readers import json_values
from etcmodel.readers.records import Format
from etcmodel.readers.records import Record
from etcmodel.readers.records import Source
from etcmodel.readers.records import Text

_TO_SPACES = str.maketrans(dict.fromkeys(f"_{string.punctuation}‘’´`", " "))
# Field of a question with pages -> folder in the archive.
_FOLDERS = {"EntityPages": "wikipedia", "SearchResults": "web"}


class TriviaQARecord(Record, frozen=True):
    """One question and its evidence.

    Attributes:
        question: the question.
        text: the nonblank lines of all pages; Wikipedia's pages come first.
        answers: all forms of the answer, unnormalized forms first; None if the
            file has none.
        truths: the gold answers of the official metrics: normalized aliases and
            human answers.
        missing_pages: number of pages whose file does not exist.
    """

    id: str
    question: str
    text: str
    answers: tuple[str, ...] | None = None
    truths: tuple[str, ...] | None = None
    missing_pages: int = 0

    @property
    def counts(self):
        """Number of pages without a file, reported to the user."""
        return {"evidence_pages_missing": self.missing_pages}


class _Page(msgspec.Struct):
    Filename: Text


class _Answer(msgspec.Struct):
    Value: str
    NormalizedAliases: tuple[str, ...]
    Aliases: tuple[str, ...] = ()
    HumanAnswers: tuple[str, ...] = ()


class _Question(msgspec.Struct):
    QuestionId: Text
    Question: Text
    EntityPages: list[_Page] = []
    SearchResults: list[_Page] = []
    Answer: _Answer | None = None


def normalize_answer(text: str) -> str:
    """Normalizes an answer for comparison.

    Lower-cases the text, replaces ASCII punctuation and the characters ‘, ’, ´
    and ` by spaces, drops the words "a", "an" and "the", and leaves single
    spaces. Example: "The Quick-brown, an Apple!" becomes "quick brown apple".
    """
    return answer_metrics.normalize_answer(text, _TO_SPACES)


@functools.lru_cache(maxsize=16)
def _read_page(path: str) -> str:
    lines, size = [], 0
    for line in json_stream.read_text_lines(path):
        size += len(line)
        files.check_size(size, path)
        lines.append(line.strip())
    text = "\n".join(filter(None, lines))
    if json_values.INVALID_UTF8_MARK in text:
        raise UserError(f"{path} is not UTF-8")
    return text


def _load_page(name: str, folder: str, source: Source) -> str | None:
    """Returns the text of a page; None if its file does not exist.

    Raises:
        UserError: the file cannot be read, or the name points outside the
            folder.
    """
    if not files.is_below(name):
        raise UserError(f"{show(name)} points outside evidence/{folder}")
    root = os.path.dirname(os.path.dirname(files.full_name(source.path)))
    folder = os.path.join(root, "evidence", folder)
    return files.read_form(_read_page, folder, name)


def _bad_evidence(value, source, field, problem) -> RecordError:
    problem = f"its evidence cannot be read: {problem}"
    return source.error(
        "no evidence file",
        record_id=value.QuestionId,
        field=field,
        problem=problem.removesuffix("."),
        advice=(
            "Unpack the official archive, with the folder `evidence` beside "
            "the folder `qa`"
        ),
    )


def _make(value: _Question, source: Source) -> TriviaQARecord:
    texts, missing = [], []
    for field, folder in _FOLDERS.items():
        for i, page in enumerate(getattr(value, field)):
            place = f"{field}[{i}].Filename"
            try:
                text = _load_page(page.Filename, folder, source)
            except UserError as cause:
                raise _bad_evidence(value, source, place, str(cause)) from None
            if text is None:
                missing.append((place, f"evidence/{folder}/{page.Filename}"))
            else:
                texts.append(text)
    if missing and not any(texts):
        place, path = missing[0]
        problem = f"{path} does not exist"
        raise _bad_evidence(value, source, place, problem)
    answers = truths = None
    if (answer := value.Answer) is not None:
        answers = (answer.Value, *answer.Aliases, *answer.HumanAnswers)
        answers += answer.NormalizedAliases
        answers = tuple(dict.fromkeys(x for x in answers if x.strip()))
        truths = answer.NormalizedAliases
        truths += tuple(map(normalize_answer, answer.HumanAnswers))
    return TriviaQARecord(
        id=value.QuestionId,
        question=value.Question,
        text="\n".join(filter(None, texts)),
        answers=answers,
        truths=truths,
        missing_pages=len(missing),
        source=source,
    )


def _check(record: TriviaQARecord, split: str) -> None:
    if split == "train" and not record.text:
        raise record.error(
            "no evidence",
            field="EntityPages",
            problem="none of its pages has any text, expected at least one",
        )
    if split != "predict" and not record.answers:
        raise record.missing_answer("answer", "Answer", record.answers, split)


FORMAT = Format(
    _Question,
    'a TriviaQA record {"QuestionId": "...", "Question": "...", "EntityPages": '
    '[{"Filename": "..."}, ...], "SearchResults": [{"Filename": "..."}, ...], '
    '"Answer": {"Value": "...", "Aliases": ["...", ...], '
    '"NormalizedAliases": ["...", ...]}}',
    functools.partial(json_stream.read_json_array, key="Data"),
    _check,
    _make,
    id_field="QuestionId",
)


def gold(record: TriviaQARecord) -> tuple[str, ...] | None:
    """Returns normalized aliases and human answers; None if unknown."""
    return record.truths


def score(
    predictions: Mapping[str, str], gold: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Computes the official metrics, in percent; 0 without questions.

    The score of an answer is its maximum over all gold answers:

        score({"a": "the York Minster"}, {"a": ["york", "eboracum"]})
        -> {"exact_match": 0.0, "f1": 66.67}
    """
    exact = f1 = 0.0
    for name, truths in gold.items():
        if name in predictions and truths:
            answer = normalize_answer(predictions[name])
            truths = [normalize_answer(x) for x in truths]
            exact += answer in truths
            f1 += max(answer_metrics.word_scores(answer, x).f1 for x in truths)
    number = max(len(gold), 1)
    return {"exact_match": 100 * exact / number, "f1": 100 * f1 / number}
