"""Natural Questions' official file format for predictions.

    {"predictions": [
        {"example_id": -2226525965842375672,
         "long_answer": {"start_token": 391, "end_token": 604,
                         "start_byte": -1, "end_byte": -1},
         "long_answer_score": 13.5,
         "short_answers": [{"start_token": 555, "end_token": 560,
                            "start_byte": -1, "end_byte": -1}],
         "short_answers_score": 26.4,
         "yes_no_answer": "NONE"}]}

Answers are token spans here; the format's byte offsets are written as -1, which
the official script takes for "compare the tokens".
"""

import math
from collections.abc import Mapping

from etcmodel.tasks.errors import UserError
from etcmodel.tasks.errors import show
from etcmodel.tasks.nq.metrics import NULL_SPAN
from etcmodel.tasks.nq.metrics import YES_NO_ANSWERS
from etcmodel.tasks.nq.metrics import NQPrediction
from etcmodel.tasks.nq.metrics import Span
from etcmodel.tasks.nq.metrics import is_null

_ADVICE = "Write the official format of Natural Questions' predictions."


# The outputs of `decode_pages` that `make_prediction` takes, in order.
DECODED = (
    "best_long_answer_start",
    "best_long_answer_end",
    "long_answer_score",
    "best_short_answer_start",
    "best_short_answer_end",
    "short_answer_score",
    "best_yes_no",
)


def make_prediction(
    long_start: int,
    long_end: int,
    long_score: float,
    short_start: int,
    short_end: int,
    short_score: float,
    yes_no: int,
) -> NQPrediction:
    """A prediction of `decode_pages` as the official metrics take it.

    Args:
        long_start: first word, -1 for none.
        long_end: the word after the last one.
        long_score: its score.
        short_start: first word of the short answer, -1 for none.
        short_end: the word after its last one.
        short_score: its score.
        yes_no: 0 neither, 1 yes, 2 no.

    Returns:
        The prediction.
    """
    short = ((short_start, short_end),) if short_start >= 0 else ()
    return NQPrediction(
        long_answer=(long_start, long_end),
        long_score=long_score,
        short_answers=short,
        short_score=short_score,
        yes_no=YES_NO_ANSWERS[yes_no],
    )


def _id_to_json(example_id: str) -> int | str:
    """Official ids are integers; others stay the strings they are."""
    try:
        number = int(example_id)
    except ValueError:
        return example_id
    return number if str(number) == example_id else example_id


def _span_to_json(span: Span) -> dict[str, int]:
    start, end = NULL_SPAN if is_null(span) else span
    return {
        "start_token": int(start),
        "end_token": int(end),
        "start_byte": -1,
        "end_byte": -1,
    }


def predictions_to_json(
    predictions: Mapping[str, NQPrediction],
) -> dict[str, list[dict[str, object]]]:
    """Puts predictions into the official format.

    Args:
        predictions: example id -> prediction.

    Returns:
        An object for `json.dump`. Ids that are integers in decimal notation, as
        the official ones, become integers; any others remain strings. Null
        spans among the short answers are left out.

    Raises:
        ValueError: some span is none, such as (7, 3).
    """
    return {
        "predictions": [
            {
                "example_id": _id_to_json(example_id),
                "long_answer": _span_to_json(prediction.long_answer),
                "long_answer_score": float(prediction.long_score),
                "short_answers": [
                    _span_to_json(span)
                    for span in prediction.short_answers
                    if not is_null(span)
                ],
                "short_answers_score": float(prediction.short_score),
                "yes_no_answer": prediction.yes_no.upper(),
            }
            for example_id, prediction in predictions.items()
        ]
    }


def _error(where: str, value: object, expected: str) -> UserError:
    return UserError(
        f"{where}: got {show(value)}, expected {expected}. {_ADVICE}"
    )


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _required(entry: Mapping[str, object], field: str, where: str) -> object:
    if field not in entry:
        names = ", ".join(map(str, list(entry)[:8])) or "none"
        raise UserError(
            f"{where}: there is no field {field!r} (there are: {names}). "
            f"{_ADVICE}"
        )
    return entry[field]


def _parse_span(value: object, where: str) -> Span:
    if not isinstance(value, dict):
        raise _error(where, value, "an object with start_token and end_token")
    for field in ("start_token", "end_token"):
        number = _required(value, field, where)
        if not _is_integer(number):
            raise _error(f"{where}, field {field!r}", number, "an integer")
    span = value["start_token"], value["end_token"]
    try:
        if not is_null(span):
            return span
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    for field in ("start_byte", "end_byte"):
        offset = value.get(field, -1)
        if not _is_integer(offset):
            raise _error(f"{where}, field {field!r}", offset, "an integer")
        if offset >= 0:
            raise UserError(
                f"{where}: there are byte offsets, but no token offsets. Only "
                "tokens are compared; give start_token and end_token."
            )
    return NULL_SPAN


def _parse_score(entry: Mapping[str, object], field: str, where: str) -> float:
    value = _required(entry, field, where)
    score = math.nan
    if _is_integer(value) or isinstance(value, float):
        try:
            score = float(value)
        except OverflowError:
            pass  # an integer of more than 300 digits
    if math.isnan(score):
        raise _error(f"{where}, field {field!r}", value, "a number")
    return score


def _parse_prediction(entry: Mapping[str, object], where: str) -> NQPrediction:
    long_answer = NULL_SPAN
    if "long_answer" in entry:
        long_answer = _parse_span(
            entry["long_answer"], f"{where}, field 'long_answer'"
        )
    values = entry.get("short_answers", [])
    if not isinstance(values, list):
        raise _error(f"{where}, field 'short_answers'", values, "a list")
    short_answers = [
        _parse_span(value, f"{where}, field 'short_answers', element {i}")
        for i, value in enumerate(values)
    ]
    yes_no = entry.get("yes_no_answer", "NONE")
    if not isinstance(yes_no, str) or yes_no.lower() not in YES_NO_ANSWERS:
        raise _error(
            f"{where}, field 'yes_no_answer'", yes_no, "NONE, YES or NO"
        )
    scores = {
        name: _parse_score(entry, f"{name}_score", where)
        for name in ("long_answer", "short_answers")
    }
    try:
        return NQPrediction(
            long_answer=long_answer,
            long_score=scores["long_answer"],
            short_answers=tuple(
                span for span in short_answers if not is_null(span)
            ),
            short_score=scores["short_answers"],
            yes_no=yes_no.lower(),
        )
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def parse_predictions(
    json_object: object, source: str = "predictions"
) -> dict[str, NQPrediction]:
    """Reads predictions in the official format.

    As in the official script, the long answer, the short answers and the yes/no
    answer may be left out if there is none, while scores may not; yes and no
    may be written in lower case.

    Args:
        json_object: the whole content of a file, from `json.load`.
        source: where it is from, such as the file's name; for messages.

    Returns:
        Example id -> prediction; ids that are integers become strings. Null
        spans among the short answers are left out.

    Raises:
        UserError: something is missing, of a wrong type, or contradicts
            itself, or an id occurs twice; the message says where.
    """
    if not isinstance(json_object, dict):
        raise _error(source, json_object, "an object with 'predictions'")
    entries = _required(json_object, "predictions", source)
    if not isinstance(entries, list):
        raise _error(f"{source}, field 'predictions'", entries, "a list")
    result: dict[str, NQPrediction] = {}
    for i, entry in enumerate(entries):
        where = f"{source}, prediction {i}"
        if not isinstance(entry, dict):
            raise _error(where, entry, "an object")
        value = _required(entry, "example_id", where)
        if not _is_integer(value) and not (isinstance(value, str) and value):
            raise _error(f"{where}, field 'example_id'", value, "an integer")
        example_id = str(value)
        if example_id in result:
            raise UserError(
                f"{where}: the example_id {show(value)} occurs twice. Leave "
                "one prediction per example."
            )
        result[example_id] = _parse_prediction(
            entry, f"{where} (example_id {show(value)})"
        )
    return result
