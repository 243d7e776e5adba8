"""Reads SQuAD's files, 1.1 and 2.0, as rows.

Source: https://rajpurkar.github.io/SQuAD-explorer; Rajpurkar et al., "SQuAD:
100,000+ Questions for Machine Comprehension of Text", 2016, and "Know What You
Don't Know: Unanswerable Questions for SQuAD", 2018.
"""

from collections.abc import Iterator

from etcmodel.errors import show
from etcmodel.readers import json_stream
from etcmodel.readers.sectioned import Fields
from etcmodel.readers.tables import BadRow

# A version or other short fields may precede the articles.
_START = (
    rb'\{(\s*"\w+"\s*:\s*("[^"]*"|[\d.]+|null|true|false)\s*,)*'
    rb'\s*"data"\s*:\s*\[\s*(\{\s*"(title|paragraphs)"|\])'
)
_ADVICE = "Get the file again, or leave the article out"


def is_squad(path: str) -> bool:
    """Returns whether a file begins like SQuAD's: `{"data": [{"title": ...`."""
    return json_stream.begins_with(path, _START)


def read_questions(
    path: str, on_position: json_stream.OnPosition, fields: Fields
) -> Iterator[tuple[json_stream.Place, object]]:
    """Yields a `Place` and a row for each question, article by article.

    The document of a row is one section with the article's title. Places have
    no line number. Yields a `tables.BadRow` for a part of the file that is not
    in SQuAD's format. Calls `on_position` after each article.
    """
    articles = json_stream.read_json_array(path, on_position, dict, key="data")
    index = 0
    for (number, _), article in articles:
        for row in _article_rows(article, f"data[{number}]", fields):
            yield json_stream.Place(index), row
            index += 1


def _article_rows(article: object, place: str, fields: Fields):
    paragraphs, problem = _list_of(article, place, "paragraphs")
    if problem:
        yield problem
        return
    title = article.get("title")
    # Titles are like "Super_Bowl_50".
    title = title.replace("_", " ") if isinstance(title, str) else ""
    for i, paragraph in enumerate(paragraphs):
        questions, problem = _list_of(
            paragraph, f"{place}.paragraphs[{i}]", "qas"
        )
        if problem:
            yield problem
            continue
        # Not checked here: a bad text is reported for each of its questions.
        document = [{"title": title, "text": paragraph.get("context")}]
        for j, value in enumerate(questions):
            if not isinstance(value, dict):
                yield _problem(
                    f"{place}.paragraphs[{i}].qas[{j}]", value, "a JSON object"
                )
                continue
            row = {
                fields.id_field: value.get("id"),
                fields.query or "question": value.get("question"),
                fields.text or "context": document,
                fields.label or "answers": value.get("answers"),
                "is_impossible": value.get("is_impossible"),
            }
            yield {key: x for key, x in row.items() if x is not None}


def _list_of(value: object, place: str, key: str):
    """Returns an object's list and None, or None and a problem."""
    if not isinstance(value, dict):
        return None, _problem(place, value, "a JSON object")
    values = value.get(key)
    if not isinstance(values, list):
        return None, _problem(f"{place}.{key}", values, "a list of objects")
    return values, None


def _problem(place: str, value: object, expected: str) -> BadRow:
    return BadRow(
        "not in SQuAD's format",
        f"got {show(value)}, expected {expected}",
        _ADVICE,
        place,
    )
