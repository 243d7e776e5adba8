"""One rule for each kind of value that a field of a row may hold.

Every source (CSV, JSON, Parquet, Arrow, data frames, Hugging Face and `tf.data`
datasets, Python) passes the fields that are read through `read_cell`.
docs/input_values.md lists the rules.
"""

import ast
import datetime
import decimal
import io
import itertools
import json
import math
import re
import tokenize
import uuid
import warnings
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import NamedTuple

from etcmodel.datasets.json_values import UniqueKeys
from etcmodel.errors import show

_MIDNIGHT = " 00:00:00"
# The first characters of what `_read_print` reads.
_START = re.compile(r"""[\[{(<]|b['"]|[A-Za-z_][\w.]{0,40}\(""")
_ENDS = "])}>'\""
# Prints of objects that do not show all that is needed to read them.
_OBJECT = re.compile(r"<tf\.|<[\w.]{1,99} (object )?at 0x|tf\.\w{0,20}Tensor\(")
_SERIES = re.compile(r"\n(Name: .{1,200}, )?(Length: \d{1,20}, )?dtype: \w+\Z")
# What NumPy prints in brackets: strings, brackets and other words.
_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\[\]]|[^\s\[\]'",]+""", re.DOTALL
)
_TOUCHING = re.compile(r"""['"]['"]""")
_WORDS = {"nan": "None", "NaT": "None", "<NA>": "None", "None": "None"}
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?")
_PRINTED = ast.List | ast.Tuple | ast.Set | ast.Dict | ast.Call
_NO_PRINT = (
    *(ValueError, TypeError, SyntaxError, tokenize.TokenError),
    *(RecursionError, MemoryError, decimal.DecimalException, IndexError),
)
_IN_JSON = "etcmodel: a value that cannot be read"
_ADVICE = "Write it as JSON, or as a list of one string if it is the text"


class BadCell(NamedTuple):
    """Stands for a value that cannot be read.

    Attributes:
        reason: a few words that group such errors.
        problem: what was found and what was expected.
        advice: what to do.
    """

    reason: str
    problem: str
    advice: str = "Fix the record, or leave it out"


class _Unreadable(Exception):
    """Carries the `BadCell` of a value out of nested ones."""

    def __init__(self, *args: str):
        super().__init__(*args)
        self.cell = BadCell(*args)


def read_row(
    values: Iterable[tuple[object, object]], used: Collection[str] | None
) -> dict[str, object]:
    """Converts the fields of a row that are read; the others become None.

    Args:
        values: pairs of field and value.
        used: names of the fields that are read; None for all.
    """
    row = {}
    for name, value in values:
        is_used = used is None or str(name) in used
        row[str(name)] = read_cell(value) if is_used else None
    return row


def read_cell(value: object) -> object:
    """Converts a value of any source to what JSON has.

    Examples: `"['a' 'b']"`, `np.array(["a", "b"])` and `("a", "b")` give
    `["a", "b"]`; `Decimal("1.50")` gives 1.5; NaN gives None.

    Returns:
        A string, number, boolean, None, list or dict; `BadCell` for a value
        that has no such form.
    """
    try:
        value = _plain(value)
        return read_print(value) if isinstance(value, str) else value
    except _Unreadable as error:
        return error.cell
    except (RecursionError, MemoryError):
        return BadCell("nested too deeply", "it is nested too deeply")


def to_json(value: object) -> object:
    """Returns a converted value as JSON can hold it, for `from_json`."""
    return {_IN_JSON: [*value]} if isinstance(value, BadCell) else value


def _plain(value: object) -> object:
    """Converts a value that is no string of CSV."""
    if value is None or type(value) in (str, bool, int):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "etcmodel.mark_invalid_bytes")
    if isinstance(value, BadCell):
        raise _Unreadable(*value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "as_py"):
        return _plain(_arrow_value(value))
    if isinstance(value, Mapping):
        return _object(value)
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(x) for x in value), key=str)
    if isinstance(value, datetime.date):
        return str(value).removesuffix(_MIDNIGHT)
    if isinstance(value, datetime.time | uuid.UUID):
        return str(value)
    if isinstance(value, decimal.Decimal):
        is_whole = value.is_finite() and value.as_tuple().exponent >= 0
        value = int(value) if is_whole else float(value)
    return _number_or_array(value)


def _number_or_array(value: object) -> object:
    """Converts numbers, NumPy's scalars, arrays and tensors."""
    dtype = str(getattr(value, "dtype", ""))
    if dtype.startswith("datetime64") and not hasattr(value, "iloc"):
        # As Python objects, nanoseconds are plain integers.
        value = value.astype("datetime64[us]")
    if isinstance(value, str | int | float) or hasattr(value, "item"):
        if getattr(value, "shape", ()) == ():
            value = value.item() if hasattr(value, "item") else value
        if isinstance(value, float):
            return _finite(value)
        if value is None or type(value) in (str, bool, int):
            return value
        if isinstance(value, str | int):
            return str(value) if isinstance(value, str) else int(value)
    for name in ("tolist", "to_list", "numpy"):
        if hasattr(value, name):
            plain = getattr(value, name)()
            if plain is not value:
                return _plain(plain)
    if isinstance(value, datetime.date | bytes):
        return _plain(value)
    raise _Unreadable(
        "a value of another type",
        f"got {show(value)} of the type {type(value).__name__}, expected text, "
        "a number, true, false, a list or an object",
    )


def _finite(value: float) -> float | None:
    """Returns a float; None for NaN."""
    if math.isinf(value):
        raise _Unreadable(
            "an infinite number", f"got {value}, expected a finite number"
        )
    return None if math.isnan(value) else value


def _arrow_value(scalar: object) -> object:
    """Returns the Python value of a scalar of Arrow."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return bytes(scalar.as_buffer())
    except (ValueError, OverflowError, LookupError, OSError) as error:
        # Such as a time of the year 10000, or of an unknown time zone.
        message = str(error).splitlines()[0]
        raise _Unreadable(
            f"unreadable {scalar.type}",
            f"the value of the type {scalar.type} cannot be read ({message})",
            "Write it as a string",
        ) from None


def _object(value: Mapping) -> object:
    """Converts a dict, and what `to_json` made of a `BadCell`."""
    repeated = getattr(value, "repeated", None)
    if repeated is not None:
        raise _repeated(repeated)
    found = {str(_plain(key)): _plain(x) for key, x in value.items()}
    if found.keys() == {_IN_JSON}:
        raise _Unreadable(*found[_IN_JSON])
    if len(found) < len(value):
        names = [str(x) for x in value]
        raise _repeated(next(x for x in names if names.count(x) > 1))
    return found


def _repeated(name: str) -> _Unreadable:
    return _Unreadable(
        "repeated field",
        f"an object has {show(name)} twice",
        "Keep one of them",
    )


def read_print(text: str) -> object:
    """Reads a text that is JSON, or an object as Python or NumPy prints it.

    Example: `"{'text': array(['Brno'], dtype=object)}"` gives
    `{"text": ["Brno"]}`.

    Returns:
        The list, object or string that was printed; the text if it is none.

    Raises:
        _Unreadable: the print leaves something out.
    """
    body = text.strip()
    is_series = _SERIES.search(body[-300:])
    if not (is_series or _START.match(body) and body[-1] in _ENDS):
        return text
    if is_series or _OBJECT.match(body):
        raise _Unreadable(
            "the print of an object",
            f"got {show(body)}, which is how a program prints an object, "
            "expected its content",
            _ADVICE,
        )
    for read in (_read_json, _read_python, _read_numpy):
        try:
            return read(body)
        except _NO_PRINT:
            continue
    return text


def _read_json(body: str) -> object:
    if body[0] not in "[{":
        raise ValueError("no list or object")
    value = json.loads(body, object_pairs_hook=UniqueKeys.of)
    return _plain(value)


def _read_python(body: str) -> object:
    """Reads a print of Python: a list, tuple, set, dict, bytes or array."""
    with warnings.catch_warnings():
        # Of escapes such as "\d" in what is text after all.
        warnings.simplefilter("ignore")
        tree = ast.parse(body, mode="eval")
    is_bytes = isinstance(getattr(tree.body, "value", None), bytes)
    if not (is_bytes or isinstance(tree.body, _PRINTED)):
        raise ValueError("no list or object")
    if not is_bytes and _has_joined_strings(body):
        raise ValueError("no commas")
    value = ast.literal_eval(_Prints().visit(tree))
    return _plain(value)


def _has_joined_strings(body: str) -> bool:
    """Tells whether Python would read NumPy's `['a' 'b']` as one string."""
    tokens = tokenize.generate_tokens(io.StringIO(body).readline)
    kinds = [x.type for x in tokens if x.type != tokenize.NL]
    return (tokenize.STRING,) * 2 in itertools.pairwise(kinds)


class _Prints(ast.NodeTransformer):
    """Replaces `array([...], dtype=...)` by its list, `np.int64(1)` by 1."""

    def visit_Call(self, node):
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name in ("datetime.date", "datetime.datetime"):
            kind = getattr(datetime, name.partition(".")[2])
            return ast.Constant(_plain(kind(*map(ast.literal_eval, node.args))))
        if name == "Decimal":
            return ast.Constant(
                _plain(decimal.Decimal(ast.literal_eval(node.args[0])))
            )
        if name == "Timestamp":
            text = ast.literal_eval(node.args[0])
            return ast.Constant(text.removesuffix(_MIDNIGHT))
        is_known = name in ("array", "tensor", "UUID", "set", "frozenset")
        if (is_known or name.startswith("np.")) and node.args:
            return node.args[0]
        return node

    def visit_Name(self, node):
        return ast.Constant(None) if node.id in ("nan", "NaT") else node

    def visit_List(self, node):
        self.generic_visit(node)
        if any(
            isinstance(x, ast.Constant) and x.value is ... for x in node.elts
        ):
            if len(node.elts) == 1:
                raise ValueError("the text [...]")
            raise _abbreviated(ast.unparse(node))
        return node


def _read_numpy(body: str) -> object:
    """Reads what NumPy prints of an array: `['a' 'b']`, `[0. 2.]`."""
    if body[0] != "[" or body[-1] != "]":
        raise ValueError("no array")
    tokens = _TOKEN.findall(body)
    # NumPy prints white space between strings.
    if _TOKEN.sub("", body).strip() or _TOUCHING.search(body):
        raise ValueError("no array")
    words, is_cut = [], False
    for token in tokens:
        if token == "...":
            is_cut = True
        elif token[0] in "[]'\"":
            words.append(token)
        elif token in _WORDS or token in ("True", "False"):
            words.append(_WORDS.get(token, token))
        elif _NUMBER.fullmatch(token):
            words.append(token.lstrip("+"))
        else:
            raise ValueError("a word")
    if is_cut and any(x not in ("[", "]") for x in words):
        raise _abbreviated(body)
    if is_cut:
        raise ValueError("a text")
    source = ",".join(words).replace("[,", "[").replace(",]", "]")
    return _plain(ast.literal_eval(source))


def _abbreviated(text: str) -> _Unreadable:
    return _Unreadable(
        "a shortened list",
        f"got {show(text)}, in which '...' stands for what was left out, "
        "expected the whole list",
        "Write it as JSON",
    )
