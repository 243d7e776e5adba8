"""Errors that users can fix; the command line prints no traceback."""

import collections
import re
import reprlib

# Prefix of a model name without owner -> the model's owner in the hub.
_OWNERS = {
    "bert-": "google-bert",
    "roberta-": "FacebookAI",
    "xlm-roberta-": "FacebookAI",
    "distilbert-": "distilbert",
}
_MAX_SHOWN = 80
# Lines of TensorFlow's errors that name only a place in a graph.
_GRAPH_LINES = (
    "Graph execution error",
    "Detected at node",
    "<stack traces unavailable>",
)
# Parts of lines that name only a place in a graph.
_PLACES = re.compile(
    r"^\{\{.*?\}\} *"
    r"|Error in user-defined function passed to .{0,200}?Iterator::\S+: +"
    r"|assertion failed: "
    r"|Name: <unknown>, "
    r"|(?<! ) *\[Op:\w+\]( name: *)?$"
)


class UserError(Exception):
    """An error that the command line prints without traceback (exit code 1)."""


def show(value: object) -> str:
    """Returns a value's repr, cut to about 80 characters: `'berl...mitte'`."""
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = _MAX_SHOWN
    shortener.maxlist = shortener.maxdict = shortener.maxtuple = 4
    return shortener.repr(value)


def where(
    path: str,
    index: int,
    line: int | None = None,
    record_id: str | None = None,
) -> str:
    """Describes the place of a record for a message.

    Example: `"rows.csv, line 4, record 2 (id 'x')"`. Lines count from 1,
    records from 0.
    """
    place = path if line is None else f"{path}, line {line}"
    place += f", record {index}"
    return place if record_id is None else f"{place} (id {show(record_id)})"


class RecordError(UserError):
    """Raised for an unusable record of a data file.

    Attributes:
        reason: a few words that group such errors in statistics, such as
            `"answer is not a candidate"`.
        path: the file.
        index: position of the record in the file, from 0.
        explanation: the message without the flag that skips such records.
    """

    def __init__(
        self,
        path: str,
        index: int,
        reason: str,
        *,
        line: int | None = None,
        record_id: str | None = None,
        field: str | None = None,
        problem: str,
        advice: str = "Fix the record, or leave it out",
    ):
        """Builds the message.

        `path`, `index`, `line` and `record_id` are the arguments of `where`.
        `field` is the wrong field. `problem` says what was found and what was
        expected. `advice` says what to do; the message adds how to skip such
        records.
        """
        self.reason, self.path, self.index = reason, path, index
        place = where(path, index, line, record_id)
        if field is not None:
            place += f", field {field!r}"
        self.explanation = f"{place}: {problem}. {advice}."
        super().__init__(
            f"{self.explanation[:-1]}, or skip such records with "
            "`skip_bad_records`."
        )

    def without_traceback(self) -> "RecordError":
        """Drops traceback and cause, which keep the record; returns self."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)

    def without_flag(self) -> "RecordError":
        """Removes the flag from the message; returns self."""
        self.args = (self.explanation,)
        return self

    def __reduce__(self):
        """Makes errors picklable, for Beam workers."""
        return _restored, (str(self), vars(self))


def _restored(message: str, attributes: dict) -> RecordError:
    error = RecordError.__new__(RecordError)
    error.args = (message,)
    vars(error).update(attributes)
    return error


class BadRecords:
    """Counts unusable records, or raises their errors.

    Args:
        skip: count bad records instead of raising an error.

    Attributes:
        counts: reason -> number of records skipped for it.
        examples: the messages of the first `MAX_EXAMPLES`.
    """

    MAX_EXAMPLES = 5

    def __init__(self, skip: bool = False):
        self.skip = skip
        self.counts: collections.Counter[str] = collections.Counter()
        self.examples: list[str] = []

    def report(self, error: RecordError) -> None:
        """Counts a bad record, or raises `error` if bad records are errors."""
        if not self.skip:
            raise error
        self.counts[error.reason] += 1
        if len(self.examples) < self.MAX_EXAMPLES:
            self.examples.append(str(error))

    @property
    def total(self) -> int:
        """Number of skipped records."""
        return sum(self.counts.values())

    def summary(self) -> str:
        """Returns a report for the screen; empty if nothing was skipped."""
        if not self.counts:
            return ""
        lines = [f"Skipped {self.total} bad records:"]
        for reason, count in self.counts.most_common():
            lines.append(f"  {count:6d}  {reason}")
        lines.append("The first of them:")
        lines.extend(f"  {example}" for example in self.examples)
        return "\n".join(lines)


def without_stack(message: str) -> list[str]:
    """Returns the lines of a TensorFlow error that describe the problem.

    Drops lines about the graph. Returns the whole message if no line is left.
    """
    lines = [
        re.sub(_PLACES, "", line)
        for line in message.splitlines()
        if line and not line[0].isspace() and not line.startswith(_GRAPH_LINES)
    ]
    return [line for line in lines if line] or [message]


def download_advice(path: str) -> str:
    """Returns advice on downloading a model whose directory does not exist."""
    name = path.rstrip("/")
    if not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name):
        name = name.split("/")[-1]
        owners = [x for start, x in _OWNERS.items() if name.startswith(start)]
        name = f"{owners[0] if owners else 'ORGANIZATION'}/{name}"
    return (
        "Nothing is downloaded: get the model first, for example with "
        f"`hf download {name} --local-dir={path}`."
    )
