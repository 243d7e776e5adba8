"""Suggests names for misspelled keyword arguments."""

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec
from typing import TypeVar

from etcmodel.errors import UserError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def suggest_names(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorator: rejects unknown keyword arguments and suggests a name.

    Example: `DocumentClassifier has no option 'poolin'. Did you mean pooling?`

    Args:
        function: function without `**kwargs`. For `__init__` and methods named
            `from_...`, errors name the class.
    """
    parameters = inspect.signature(function).parameters.values()
    known = [x.name for x in parameters if x.name not in ("self", "cls")]
    options = [x.name for x in parameters if x.kind is x.KEYWORD_ONLY]
    *owners, owner = function.__qualname__.split(".")
    if owner.startswith(("__init__", "from_")):
        owner = owners[-1]

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in kwargs:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                advice = f"Did you mean {close[0]}? " if close else ""
                raise UserError(
                    f"{owner} has no option {name!r}. {advice}Choose from: "
                    f"{', '.join(options)}."
                )
        return function(*args, **kwargs)

    return checked
