"""Makes odd requests: changes good requests at random, reproducibly by seed."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from etcmodel.serving import rest

_TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\ufeff",
    "\u202eabc\u200b\u0301",
    "😀" * 50,
    "# \n\n# \n\n\n",
    "\n" * 500,
    "a" * 5000,
    "where does jan live " * 300,
    "[CLS] [MASK] [SEP]",
    "<script>&amp;\\\"'",
    "\u2028\u0085\t\x1f",
)
_VALUES = (
    *(None, True, False, 0, 1, -1, 7, -5, 0.5, -0.0),
    *(2**31 - 1, 2**31, -(2**31), 2**63, -(2**63), 10**400),
    *(1e38, 1e39, -1e308, float("nan"), float("inf"), float("-inf")),
    *([], [[]], [[], [[]]], {}, {"b64": "?"}, {"b64": "/w=="}),
    *({"b64": 3}, {"b64": "gICA"}, {"b64": ""}, {"a": 1}, [None], ["a", 1]),
    *({"b64": "aGk=", "c": 1}, [{"b64": "aGk="}], "NaN", "1"),
)
# Texts and lists are rarely as long as this.
_MANY_CHARACTERS = 1_000_000
_MANY_ITEMS = 10_000
_RARELY = 0.004


def make(
    signature: str, inputs: Mapping[str, np.ndarray], seed: int, number: int
) -> bytes:
    """Returns the body of an odd request, determined by the arguments."""
    rng = np.random.default_rng([seed, number])
    content = rest.body_of(signature, inputs)
    for _ in range(_choose(rng, [1, 1, 1, 2, 3])):
        content = _choose(rng, _CHANGES)(rng, content)
    body = json.dumps(content).encode("ascii")
    if rng.random() < 0.12:
        body = _choose(rng, _DAMAGES)(rng, body)
    return body


def _choose(rng, values):
    """Returns a random element of a sequence of any values."""
    return values[rng.integers(len(values))]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Returns (container, key) of each value in lists and objects."""
    found, open_ = [], [value]
    while open_:
        x = open_.pop()
        items = x.items() if isinstance(x, dict) else enumerate(x)
        for key, y in items:
            found.append((x, key))
            if isinstance(y, dict | list):
                open_.append(y)
    return found


def _pick(rng, content, kinds=object):
    """Returns a random place whose value is of the types `kinds`, or None."""
    if not isinstance(content, dict | list):
        return None
    found = [(x, y) for x, y in _places(content) if isinstance(x[y], kinds)]
    return _choose(rng, found) if found else None


def _at_a_place(kinds=object):
    """Returns a decorator for changes of one value."""

    def decorate(change):
        def changed(rng, content):
            place = _pick(rng, content, kinds)
            if place is not None:
                container, key = place
                container[key] = change(rng, container[key])
            return content

        return changed

    return decorate


@_at_a_place()
def _replace(rng, value):
    del value
    return copy.deepcopy(_choose(rng, _VALUES))


@_at_a_place(str)
def _replace_text(rng, value):
    odd = _choose(rng, _TEXTS)
    if rng.random() < _RARELY:
        odd = (odd or "ab ") * (_MANY_CHARACTERS // max(len(odd), 3))
    return _choose(rng, [odd, value + odd, odd + value, value[::-1]])


@_at_a_place((int, float))
def _replace_number(rng, value):
    if isinstance(value, bool):
        return not value
    small = int(rng.integers(-20, 40))
    large = int(rng.integers(-(2**40), 2**40))
    return _choose(rng, [small, small, -value, value + 1, large, float(small)])


@_at_a_place(list)
def _resize(rng, value):
    if not value:
        return value
    if rng.random() < _RARELY:
        return value * (_MANY_ITEMS // len(value))
    return _choose(
        rng, [[], value[:-1], value[1:], value * 2, value * 7, value[::-1]]
    )


@_at_a_place(list)
def _pad(rng, value):
    """Replaces a value by padding, or adds padding before or after it."""
    made = _padding(value)
    return _choose(rng, [made, value + made, made + value])


def _padding(value):
    if isinstance(value, list):
        return [_padding(x) for x in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False if isinstance(value, bool) else ""
    return -1


@_at_a_place()
def _wrap(rng, value):
    for _ in range(_choose(rng, [1, 1, 2, 50])):
        value = [value]
    return value


@_at_a_place(list)
def _unwrap(rng, value):
    return _choose(rng, value) if value else value


def _swap(rng, content):
    """Exchanges two values."""
    first, second = _pick(rng, content), _pick(rng, content)
    if first and second:
        a, b = (copy.deepcopy(x[y]) for x, y in (first, second))
        # Values are copied, because one place may be inside the other.
        first[0][first[1]], second[0][second[1]] = b, a
    return content


def _change_keys(rng, content):
    """Removes, renames or adds an entry of an object."""
    if not isinstance(content, dict):
        return content
    objects = [content, *(x[y] for x, y in _places(content))]
    objects = [x for x in objects if isinstance(x, dict) and x]
    chosen = _choose(rng, objects) if objects else content
    keys = list(chosen) or ["a"]
    value = chosen.pop(_choose(rng, keys), None)
    name = _choose(rng, ["", "a", "instances", "inputs", "\ud800", "x" * 500])
    if rng.random() < 0.5:
        chosen[name] = value
    return content


def _use_columns(rng, content):
    """Converts records to columns; sometimes gives one input extra values."""
    rows = content.get("instances") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not all(isinstance(x, dict) for x in rows):
        return content
    columns = {x: [y.get(x) for y in rows] for y in rows for x in y}
    if columns and rng.random() < 0.3:
        name = _choose(rng, [*columns])
        columns[name] = columns[name] * 2
    kept = {x: y for x, y in content.items() if x != "instances"}
    return {**kept, "inputs": columns}


def _repeat_records(rng, content):
    """Sends several records, or none."""
    rows = content.get("instances") if isinstance(content, dict) else None
    if isinstance(rows, list):
        times = _choose(rng, [0, 2, 2, 3, 3, 9, 300 // max(len(rows), 1)])
        copies = [copy.deepcopy(rows) for _ in range(times)]
        content["instances"] = [x for y in copies for x in y]
    return content


def _replace_all(rng, content):
    del content
    return copy.deepcopy(_choose(rng, _VALUES))


_CHANGES = (
    *([_replace, _replace_text, _replace_number, _resize, _pad] * 4),
    *(_wrap, _unwrap, _swap, _change_keys),
    *([_use_columns, _repeat_records] * 4),
)


def _truncate(rng, body):
    return body[: rng.integers(len(body) + 1)]


def _flip(rng, body):
    made = bytearray(body)
    for _ in range(rng.integers(1, 4) if made else 0):
        made[rng.integers(len(made))] = rng.integers(256)
    return bytes(made)


def _insert(rng, body):
    place = rng.integers(len(body) + 1)
    odd = _choose(rng, [b"\xff", b"\0", b"\xed\xa0\x80", b"\xef\xbb\xbf", b","])
    return body[:place] + odd + body[place:]


def _nest(rng, body):
    depth = _choose(rng, [30, 3000, 100_000])
    left, right = _choose(rng, [(b"[", b"]"), (b'{"a":', b"}")])
    place = _choose(rng, [0, body.find(b":") + 1])
    if not place:
        return left * depth + body + right * depth
    end = len(body) - 1
    return body[:place] + left * depth + body[place:end] + right * depth + b"}"


def _encode(rng, body):
    text = body.decode("utf-8", "replace")
    return text.encode(_choose(rng, ["utf-16", "utf-32", "utf-8-sig"]))


def _repeat_key(rng, body):
    """Repeats the first key of an object."""
    place = body.find(b"{") + 1
    end = body.find(b":", place) + 1
    value = _choose(rng, [b"1,", b"[],", b'"a",', b"{},"])
    return body[:place] + body[place:end] + value + body[place:]


_DAMAGES = (
    _truncate,
    _flip,
    _insert,
    _nest,
    _encode,
    _repeat_key,
    lambda rng, body: b"",
    lambda rng, body: rng.bytes(100),
    lambda rng, body: body + body,
    lambda rng, body: json.dumps(_replace_all(rng, body)).encode(),
)


def make_tensors(
    inputs: Mapping[str, np.ndarray], seed: int, number: int
) -> dict[str, np.ndarray]:
    """Returns inputs with random changes; keeps their types."""
    rng = np.random.default_rng([seed, number])
    made = {name: np.asarray(x) for name, x in inputs.items()}
    if rng.random() < 0.3:
        # Changes the shapes of all inputs alike, so that they still match.
        change = _choose(rng, [_twice, _no_rows, _longer])
        made = {name: change(rng, x) for name, x in made.items()}
    for _ in range(rng.integers(1, 4)):
        name = _choose(rng, [*made])
        change = _choose(rng, _TENSOR_CHANGES)
        made[name] = np.asarray(change(rng, made[name]), made[name].dtype)
    return made


def describe(x: np.ndarray) -> str:
    """Returns the shape of an array and its first values."""
    return f"{x.shape} {str(x.reshape(-1)[:6].tolist())[:120]}"


def _twice(rng, x):
    del rng
    return np.concatenate([x, x]) if x.ndim else x


def _no_rows(rng, x):
    del rng
    return x[:0] if x.ndim else x


def _longer(rng, x):
    del rng
    return np.concatenate([x, x], axis=1) if x.ndim > 1 else x


def _fewer_dimensions(rng, x):
    del rng
    return x[0] if x.ndim and len(x) else x


def _more_dimensions(rng, x):
    return x[None] if rng.random() < 0.5 else x[..., None]


def _cut(rng, x):
    axis = rng.integers(max(x.ndim, 1))
    return np.delete(x, [0], axis) if x.ndim and x.shape[axis] else x


def _numbers(kind):
    """Returns unusual numbers to test for a type."""
    if kind == "f":
        return [np.nan, np.inf, -np.inf, 3e38, -1.0, 0.0, 1e-45]
    return [-1, -2, 0, 1, 3, 50, 2**31 - 1, -(2**31), 10**6]


def _change_values(rng, x):
    """Changes some values, or all of them."""
    made, flat = x.copy(), x.size
    if not flat:
        return made
    chosen = rng.random(x.shape) < _choose(rng, [0.05, 0.5, 1.1])
    if x.dtype == object:
        # JSON requests contain the texts `_TEXTS`; tensors also contain bytes
        # that are not UTF-8.
        odd = [y.encode("utf-8", "surrogatepass") for y in _TEXTS]
        odd += [b"\xff\xfe", bytes(x.flat[0])[:-3], rng.bytes(50)]
    elif x.dtype == bool:
        return x ^ chosen
    elif rng.random() < 0.3:
        values = rng.integers(-3, 40, x.shape)
        return np.where(chosen, values, x)
    else:
        odd = _numbers(x.dtype.kind)
    for place in zip(*np.nonzero(np.atleast_1d(chosen)), strict=True):
        value = _choose(rng, odd)
        if x.ndim:
            made[place] = _fit(value, x.dtype)
        else:
            made = np.array(_fit(value, x.dtype), x.dtype)
    return made


def _fit(value, dtype):
    """Limits an integer to the range of its type; keeps other numbers."""
    if dtype.kind != "i":
        return value
    limits = np.iinfo(dtype)
    return min(max(value, limits.min), limits.max)


def _extreme(rng, x):
    """Sets one integer to the minimum or maximum of its type."""
    made = x.copy()
    if x.size and x.dtype.kind == "i":
        limits = np.iinfo(x.dtype)
        made.reshape(-1)[rng.integers(x.size)] = _choose(
            rng, [limits.min, limits.max]
        )
    return made


_TENSOR_CHANGES = (
    *([_change_values] * 6),
    _extreme,
    _extreme,
    _twice,
    _no_rows,
    _longer,
    _fewer_dimensions,
    _more_dimensions,
    _cut,
)
