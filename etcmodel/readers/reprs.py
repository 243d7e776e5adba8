"""Parses strings that contain JSON or the repr of a Python or NumPy object."""

import ast
import datetime
import decimal
import json
import re
import uuid
import warnings

from etcmodel.errors import show
from etcmodel.readers.json_values import UniqueKeys

# First characters of a string that may be a repr.
_START = re.compile(r"""[\[{(<]|b['"]|[A-Za-z_][\w.]{0,40}\(""")
_ENDS = "])}>'\""
_OPENING, _CLOSING = ("[", "(", "{"), ("]", ")", "}")
# Reprs of unsupported objects; most of them omit content.
_OBJECT = re.compile(
    r"<tf\.|<[^<>\n]{1,200} at 0x|tf\.\w{0,20}Tensor\(|masked_array\("
    r"|(Ordered|default)[dD]ict\(|deque\(|dict_\w{1,9}\(|(Range|Multi)?Index\("
    r"|Series\(\[|(jnp\.a|A)rray\("
)
_SERIES = re.compile(
    r"\n(Name: .{1,200}, )?(Length: \d{1,20}, )?dtype: [\w\[\], ]{1,60}\Z"
)
_FIRST_ROW = re.compile(r"\S{1,60} {2,}\S")
# Tokens of a repr: white space, strings, words, and brackets or punctuation.
_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<string>[bB]?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))"""
    r"""|(?P<word><NA>|[^\s\[\](){}'",:=]+)|(?P<other>[\[\](){},:=])""",
    re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?")
_NAMES = {
    **dict.fromkeys(("nan", "NaN", "NaT", "NA", "null"), None),
    **{"true": True, "false": False, "inf": float("inf")},
    **{"np.True_": True, "np.False_": False, "np.nan": None},
}
_PRINTED = ast.List | ast.Tuple | ast.Set | ast.Dict | ast.Call | ast.Attribute
_NO_REPR = (
    *(ValueError, TypeError, SyntaxError, AttributeError, IndexError),
    *(RecursionError, MemoryError, decimal.DecimalException),
)
_ADVICE = "Write it as JSON, or as a list of one string if it is the text"


class UnreadableError(Exception):
    """Raised for an unreadable value; has the arguments of `cells.BadCell`."""


def repeated_key(key: str) -> UnreadableError:
    """Returns the error of a repeated key; `key` is its repr."""
    problem = f"an object has {key} twice"
    return UnreadableError("repeated field", problem, "Keep one of them")


def read(text: str) -> object:
    """Parses a string that holds JSON or the repr of an object.

    Example: `"{'text': array(['Brno'], dtype=object)}"` gives
    `{"text": ["Brno"]}`, and NumPy's `"['a' 'b']"` gives `["a", "b"]`.

    Returns:
        The list, tuple, set, dict, bytes, date or number. Tuples and sets of
        numbers, such as `"(1, 2)"`, and other strings are returned unchanged.

    Raises:
        UnreadableError: the object is not supported, its repr omits items, or
            a key is repeated.
    """
    body = text.strip()
    is_series = _SERIES.search(body[-300:]) and _FIRST_ROW.match(body)
    if not (is_series or _START.match(body) and body[-1] in _ENDS):
        return text
    is_nested = body[0] in "[{(" and _OBJECT.search(body[:2000])
    if is_series or _OBJECT.match(body) or is_nested:
        raise UnreadableError(
            "the repr of an object",
            f"got the repr of an object, {show(body)}, expected its content",
            _ADVICE,
        )
    for parse in (_parse_json, _parse_repr):
        try:
            return parse(body)
        except _NO_REPR:
            continue
    return text


def _parse_json(body: str) -> object:
    if body[0] not in "[{":
        raise ValueError("not a list or object")
    return json.loads(body, object_pairs_hook=UniqueKeys.of)


def _parse_repr(body: str) -> object:
    """Parses a list, tuple, set, dict, bytes or array of Python or NumPy."""
    with warnings.catch_warnings():
        # Plain text may have escapes such as "\d", which Python warns about.
        warnings.simplefilter("ignore")
        tree = ast.parse(_with_commas(body), mode="eval")
    is_bytes = isinstance(getattr(tree.body, "value", None), bytes)
    if not (is_bytes or isinstance(tree.body, _PRINTED)):
        raise ValueError("not a list or object")
    value = ast.literal_eval(_Values().visit(tree))
    if isinstance(value, tuple | set) and all(
        isinstance(x, int | float) for x in value
    ):
        raise ValueError("plain text, such as an interval")
    return value


def _with_commas(body: str) -> str:
    """Inserts commas between the values of a printed NumPy array.

    Example: `"['a' 'b']"` gives `"['a','b']"`.
    """
    parts, open_brackets, at = [], [], 0
    ends_value = has_space = False
    while at < len(body):
        match = _TOKEN.match(body, at)
        is_call = at and body[at] == "("
        if match is None or (ends_value and not open_brackets and not is_call):
            raise ValueError("not one value")
        at, token = match.end(), match[0]
        if match["space"]:
            has_space = True
            continue
        is_opening, is_closing = token in _OPENING, token in _CLOSING
        begins_value = match["other"] is None or is_opening
        if ends_value and begins_value and not (token == "(" and not has_space):
            if not has_space or open_brackets[-1:] != ["["]:
                raise ValueError("values without a comma")
            parts.append(",")
        if is_opening:
            open_brackets.append(token)
        elif is_closing:
            del open_brackets[-1:]
        elif match["word"] and _NUMBER.fullmatch(token):
            token = token.lstrip("+")
        elif token == "<NA>":
            token = "NA"
        parts.append(token)
        ends_value = match["other"] is None or is_closing
        has_space = False
    return "".join(parts)


class _Values(ast.NodeTransformer):
    """Replaces names and constructor calls in a repr by their values."""

    def visit_Call(self, node):
        self.generic_visit(node)
        name = ast.unparse(node.func)
        value = node.args[0] if node.args else ast.List([])
        is_list = isinstance(value, ast.List)
        is_text = isinstance(getattr(value, "value", None), str)
        if name in ("array", "np.array", "list") and is_list:
            return value
        if name in ("set", "frozenset") and isinstance(value, ast.Set):
            return value
        if name == "tensor" and (is_list or isinstance(value, ast.Constant)):
            return value
        if re.fullmatch(r"np\.(u?int|float)\d+|np\.bool_?", name):
            return value if not is_list and not is_text else node
        if name in ("np.str_", "np.bytes_"):
            return value
        if name in ("datetime.date", "datetime.datetime", "datetime.time"):
            kind = getattr(datetime, name.partition(".")[2])
            if node.keywords:
                return node
            found = kind(*map(ast.literal_eval, node.args))
            return ast.Constant(str(found).removesuffix(" 00:00:00"))
        if name == "Decimal" and is_text:
            return ast.Constant(float(decimal.Decimal(value.value)))
        if name == "UUID" and is_text:
            return ast.Constant(str(uuid.UUID(value.value)))
        if name in ("Timestamp", "np.datetime64") and is_text:
            is_missing = value.value == "NaT"
            found = value.value.replace("T", " ").removesuffix(" 00:00:00")
            return ast.Constant(None if is_missing else found)
        return node

    def _visit_name(self, node):
        name = ast.unparse(node)
        return ast.Constant(_NAMES[name]) if name in _NAMES else node

    visit_Name = visit_Attribute = _visit_name

    def visit_Constant(self, node):
        if isinstance(node.value, complex):
            raise ValueError("a complex number")
        return node

    def _visit_items(self, node):
        """Raises an error if `...` stands for omitted items."""
        self.generic_visit(node)
        if any(
            isinstance(x, ast.Constant) and x.value is ... for x in node.elts
        ):
            if len(node.elts) == 1:
                raise ValueError("the text [...]")
            text = ast.unparse(node)
            raise UnreadableError(
                "a shortened list",
                f"got {show(text)}, where '...' stands for omitted items, "
                "expected the whole list",
                "Write it as JSON",
            )
        return node

    visit_List = visit_Tuple = visit_Set = _visit_items

    def visit_Dict(self, node):
        self.generic_visit(node)
        keys = [ast.unparse(x) for x in node.keys if x is not None]
        repeated = next((x for x in keys if keys.count(x) > 1), None)
        if repeated is not None:
            raise repeated_key(repeated)
        return node
