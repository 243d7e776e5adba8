"""Requests about plain texts, such as letter.txt."""

import dataclasses
from typing import Any

from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import load
from etcmodel.readers import text_files

_SUFFIXES = ", ".join(text_files.SUFFIXES)


@dataclasses.dataclass(kw_only=True)
class Options:
    """Options that apply to plain texts only.

    Attributes:
        query: the question or query about plain texts.
        candidate: a candidate answer for plain texts, which `wikihop` needs;
            give it several times.
    """

    query: str | None = None
    candidate: list[str] | None = option(None, several=True)


def make_request(spec: TaskSpec, path: str, options: Any) -> dict[str, str]:
    """Returns the request for a plain text, with "" in place of the text."""
    preprocessor = load(spec.preprocessor)
    names = preprocessor.TEXT_REQUEST
    given = ", ".join(f"`reading={x}`" for x in options.reading or ())
    if not names:
        raise UserError(
            f"{path}: {spec.name} does not answer plain texts. Give records in "
            f"the format of its data files: {spec.dataset.FORMAT.example}."
        )
    if given:
        raise UserError(f"{given}: {path} is a plain text, without fields.")
    query = (options.query or "").strip()
    has_query = "query" in names
    if query and not has_query:
        raise UserError(f"`query={show(query)}`: {spec.name} takes no query.")
    if has_query and preprocessor.NEEDS_QUERY and not query:
        raise UserError(
            f"{path} is a plain text, and {spec.name} answers questions: give "
            '`query`, such as "Who lives in Krakow?".'
        )
    request = {"query": query, "text": ""} if has_query else {"text": ""}
    candidates = [x.strip() for x in options.candidate or ()]
    if "candidates" in names:
        if not candidates:
            raise UserError(
                f"{path} is a plain text, and {spec.name} chooses from "
                "candidates: give `candidate` several times."
            )
        if not all(candidates) or any("\n" in x for x in candidates):
            raise UserError(
                f"`candidate={show(candidates)}`: expected some text in one "
                "line each."
            )
        request["candidates"] = "\n".join(candidates)
    elif candidates:
        raise UserError(f"`candidate`: {spec.name} has no candidates.")
    return request


def read_raw(preprocessor: Any, request: dict[str, str]) -> dict[str, Any]:
    """Converts a request to the inputs of one record, as nested lists.

    Example: `{"query": "Who?", "text": "Jan."}` is `{"query": ["Who?"],
    "titles": [""], "texts": [["Jan."]]}` for the tasks of own documents.
    """
    import tensorflow as tf

    def listed(value):
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, list):
            return [*map(listed, value)]
        return value

    batch = {name: tf.constant([value]) for name, value in request.items()}
    made, _ = preprocessor.of_text(**batch)
    return {
        name: listed(
            x.to_list()[0]
            if isinstance(x, tf.RaggedTensor)
            else x.numpy().tolist()[0]
        )
        for name, x in made.items()
    }


def check_unused(options: Any) -> None:
    """Raises an error for an option that applies only to plain texts."""
    for name in ("query", "candidate"):
        if getattr(options, name) is not None:
            raise UserError(
                f"`{name}` applies to plain texts ({_SUFFIXES}), but "
                f"`input={options.input}` has records."
            )
