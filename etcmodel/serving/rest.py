"""Converts TensorFlow Serving's REST format: JSON to arrays, and back."""

import base64
import itertools
import json
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel import json_objects
from etcmodel.errors import UserError
from etcmodel.errors import show

DEFAULT_SIGNATURE = "serving_default"
TEXT_SIGNATURE = "text"
_FORMS = ("instances", "inputs")
_KINDS = {
    str: "a string",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "a list",
    type(None): "null",
}


class Request(NamedTuple):
    """A request for predictions.

    Attributes:
        signature_name: the signature to call.
        inputs: arrays by name; strings are objects of type `bytes`.
        by_row: True if the request lists records as `instances`; the answer
            then lists `predictions`. False if it has arrays as `inputs`; the
            answer then has arrays as `outputs`.
    """

    signature_name: str
    inputs: dict[str, np.ndarray]
    by_row: bool


def parse(
    body: bytes, signatures: Mapping[str, Mapping[str, tf.TensorSpec]]
) -> Request:
    """Parses the body of a request for predictions.

    Example: `{"instances": [{"question": "Who?", "document": "A text."}]}` is a
    request of one record for `serving_default`. The same request by input is
    `{"inputs": {"question": ["Who?"], "document": ["A text."]}}`.

    Args:
        body: JSON.
        signatures: signature name -> input name -> specification.

    Raises:
        UserError: the body does not fit the signature; the message names the
            input and what was expected.
    """
    try:
        content = json_objects.parse(body, is_strict=True)
    except ValueError as error:
        raise UserError(f"The body of the request: {error}.") from None
    name = content.pop("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(name, str) or name not in signatures:
        raise UserError(
            f"The model has no signature {show(name)}. Choose from: "
            f"{', '.join(signatures)}."
        )
    given = [x for x in _FORMS if x in content]
    if len(given) != 1 or len(content) != 1:
        raise UserError(
            'Expected an object with either "instances" or "inputs", and '
            f'optionally "signature_name", got {show(sorted(content))}.'
        )
    specs, (form,) = signatures[name], given
    values = content[form]
    by_row = form == "instances"
    columns = _columns(values, specs) if by_row else _named(values, specs, form)
    inputs = {x: _to_array(x, columns[x], specs[x]) for x in specs}
    _check_records(inputs)
    return Request(name, inputs, by_row)


def _check_records(inputs: Mapping[str, np.ndarray]) -> None:
    """Raises a `UserError` if inputs differ in their number of records."""
    (first, x), *others = inputs.items()
    for name, y in others:
        if len(x) != len(y):
            raise UserError(
                f"The inputs {first} and {name} differ in their number of "
                f"records: {len(x)} and {len(y)}."
            )


def _columns(rows: Any, specs: Mapping[str, Any]) -> dict[str, list]:
    """Converts rows to columns: input name -> one value per record."""
    if not isinstance(rows, list) or not rows:
        raise UserError(
            '"instances" must be a list with at least one record, got '
            f"{_kind(rows)}{' without any' if rows == [] else ''}."
        )
    named = [
        _named(row, specs, f"instances[{i}]") for i, row in enumerate(rows)
    ]
    return {name: [row[name] for row in named] for name in specs}


def _named(value: Any, specs: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Returns input name -> value; the name of a lone input may be missing."""
    names = f"an object with the inputs {', '.join(specs)}"
    is_named = isinstance(value, dict) and not _is_encoded(value)
    if not is_named and len(specs) == 1:
        return dict.fromkeys(specs, value)
    if not is_named:
        raise UserError(f"{place}: expected {names}, got {_kind(value)}.")
    for name in [*specs, *value]:
        if (name in specs) != (name in value):
            problem = "is missing" if name in specs else "is unknown"
            raise UserError(
                f"{place}: the input {show(name)} {problem}; expected {names}."
            )
    return value


def _to_array(name: str, value: Any, spec: tf.TensorSpec) -> np.ndarray:
    """Converts nested lists to an array; checks sizes and types."""
    shape, level = [], [value]
    for axis in range(spec.shape.rank):
        others = [x for x in level if not isinstance(x, list)]
        if others:
            raise UserError(
                f"The input {name} must be nested {spec.shape.rank} deep "
                "(including the list of records), got "
                f"{_kind(others[0])} at depth {axis}."
            )
        # An empty list does not show the sizes of inner axes, so the signature
        # sets them.
        sizes = sorted({len(x) for x in level}) or [spec.shape[axis] or 0]
        if not axis and not sizes[0]:
            raise UserError(
                f"The input {name} has no records, expected at least one."
            )
        if len(sizes) > 1:
            padding = {tf.string: '""', tf.bool: "false"}.get(spec.dtype, "-1")
            raise UserError(
                f"The input {name} has lists of different sizes at depth "
                f"{axis + 1}: {sizes[0]} and {sizes[-1]}. Pad the shorter ones "
                f"with {padding}."
            )
        shape.append(sizes[0])
        level = list(itertools.chain.from_iterable(level))
    if not spec.shape.is_compatible_with(shape):
        raise UserError(
            f"The input {name} has the shape {shape}, expected "
            f"{spec.shape.as_list()} (None for any size)."
        )
    made = np.empty(len(level), spec.dtype.as_numpy_dtype)
    convert = _CONVERTERS.get(spec.dtype, _to_number)
    for i, x in enumerate(level):
        made[i] = convert(name, x, spec.dtype)
    return made.reshape(shape)


def _to_bytes(name: str, value: Any, dtype: tf.DType) -> bytes:
    """Converts a string, or an object with base64, to bytes."""
    del dtype
    if _is_encoded(value):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (TypeError, ValueError) as error:
            raise UserError(
                f'The input {name}: expected a string of base64 in "b64", got '
                f"{show(value['b64'])} ({error})."
            ) from None
    if not isinstance(value, str):
        raise UserError(
            f"The input {name} must contain strings, got {_kind(value)}."
        )
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"The input {name} is not Unicode text: it has half of a "
            f"surrogate pair at character {error.start}."
        ) from None


def _to_bool(name: str, value: Any, dtype: tf.DType) -> bool:
    """Returns a boolean; rejects numbers, as TensorFlow Serving does."""
    del dtype
    if not isinstance(value, bool):
        raise UserError(
            f"The input {name} must contain booleans, got {_kind(value)}."
        )
    return value


def _to_number(name: str, value: Any, dtype: tf.DType) -> int | float:
    """Returns a number; rejects one that the dtype cannot hold."""
    is_integer = dtype.is_integer
    kinds = int if is_integer else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise UserError(
            f"The input {name} must contain {'whole ' * is_integer}numbers, "
            f"got {_kind(value)}."
        )
    # Compares Python's numbers, which may have any size, unlike NumPy's.
    make = int if is_integer else float
    if not make(dtype.min) <= value <= make(dtype.max):
        raise UserError(
            f"The input {name} has the number {show(value)}, which is no "
            f"{dtype.name}."
        )
    return value if is_integer else float(value)


_CONVERTERS = {tf.string: _to_bytes, tf.bool: _to_bool}


def _is_encoded(value: Any) -> bool:
    """Returns whether an object holds base64: `{"b64": "aGk="}`."""
    return isinstance(value, dict) and value.keys() == {"b64"}


def _kind(value: Any) -> str:
    """Returns JSON's name for the type of a value."""
    return _KINDS[type(value)]


def body_of(signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns the body of a request with `instances`, before `json.dumps`.

    The strings in `inputs` are `bytes`; any that are not UTF-8 become base64.
    """
    columns = {
        name: _listed(np.asarray(x).tolist()) for name, x in inputs.items()
    }
    rows = zip(*columns.values(), strict=True)
    made = {"instances": [dict(zip(columns, x, strict=True)) for x in rows]}
    if signature != DEFAULT_SIGNATURE:
        made["signature_name"] = signature
    return made


def _listed(value: Any) -> Any:
    """Converts the bytes in nested lists to strings, or to base64."""
    if isinstance(value, list):
        return [_listed(x) for x in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode("ascii")}


def render(outputs: Mapping[str, np.ndarray], by_row: bool) -> bytes:
    """Returns the JSON of an answer, in the form of its request.

    Example: `{"answer": ["Krakow"], "answer_type": [0]}` becomes
    `{"predictions": [{"answer": "Krakow", "answer_type": 0}]}`. If there is
    only one output, its name is left out. Outputs whose names end in `_bytes`
    become base64.
    """
    values = {name: _to_json(name, x) for name, x in outputs.items()}
    is_lone = len(values) == 1
    if not by_row:
        made = {"outputs": next(iter(values.values())) if is_lone else values}
    else:
        rows = zip(*values.values(), strict=True)
        made = {
            "predictions": [
                row[0] if is_lone else dict(zip(values, row, strict=True))
                for row in rows
            ]
        }
    return json.dumps(made, ensure_ascii=False).encode("utf-8")


def _to_json(name: str, x: np.ndarray) -> Any:
    """Converts an array to nested lists."""
    if x.dtype != object:
        return x.tolist()
    if name.endswith("_bytes"):
        text = [{"b64": base64.b64encode(v).decode("ascii")} for v in x.flat]
    else:
        text = [v.decode("utf-8", "replace") for v in x.flat]
    made = np.empty(x.size, object)
    made[:] = text
    return made.reshape(x.shape).tolist()
