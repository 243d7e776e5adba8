"""Writes the model card of an exported model: its `README.md`.

The card begins with metadata for the Hugging Face hub, as YAML, so that the
directory can be uploaded without changes.
"""

import collections
import dataclasses
import json
import math
import os
import shlex
import string
import unicodedata
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import yaml

CARD_FILE = "README.md"

# Characters that the hub's names of licences contain.
_IDENTIFIER = {*string.ascii_lowercase, *string.digits, "-", "."}
# First words of letters' Unicode names that are not names of scripts.
_NO_SCRIPTS = ("MATHEMATICAL", "MODIFIER", "FEMININE", "MASCULINE", "MICRO")
_WIDTHS = ("FULLWIDTH", "HALFWIDTH")
# Scripts with a smaller share, in percent, are joined as "others".
_MIN_SHARE = 1
_MEGABYTE = 1e6


class Version(NamedTuple):
    """A precision of the weights, with its measurements.

    Attributes:
        weights: "float32", "bfloat16" or "int8".
        num_bytes: size of the weights.
        seconds: time of a small request.
        metrics: metrics on the validation data; None if there were none.
    """

    weights: str
    num_bytes: int
    seconds: float
    metrics: Mapping[str, float] | None = None


@dataclasses.dataclass(kw_only=True)
class Facts:
    """Facts that a model card states.

    Attributes:
        task: name of the task.
        summary: description of the task.
        pipeline_tag: the hub's name of the task; "" if it has none.
        license: licence of the model; None if unknown.
        languages: codes of languages, such as "en".
        num_examples: number of training examples; None if unknown.
        steps: number of training steps; None if unknown.
        batch_size: training examples, or segments, per step; None if unknown.
        unit: what the batch size counts: "examples" or "segments".
        main_metric: name of the metric that selected the checkpoint; None if
            none did.
        run_metrics: metrics of the run's own validation of the checkpoint.
        versions: the measured precisions; the exported one is last.
        num_validated: number of validation examples.
        num_parameters: number of the model's weights.
        num_layers: number of the encoder's layers.
        num_bytes: size of all files of the model.
        length: text about the model's maximum input, and about longer texts.
        vocab_size: number of tokens of the vocabulary.
        scripts: script -> share of the vocabulary's letters, in percent.
        lower_case: whether texts are lower-cased.
        software: name -> version.
        requests: signature name -> a small request, as arrays.
    """

    task: str
    summary: str
    pipeline_tag: str
    license: str | None
    languages: Sequence[str]
    num_examples: int | None
    steps: int | None
    batch_size: int | None
    unit: str
    main_metric: str | None
    run_metrics: Mapping[str, float]
    versions: Sequence[Version]
    num_validated: int | None
    num_parameters: int
    num_layers: int
    num_bytes: int
    length: str
    vocab_size: int
    scripts: Mapping[str, float]
    lower_case: bool
    software: Mapping[str, str]
    requests: Mapping[str, Mapping[str, np.ndarray]]


def write(directory: str, facts: Facts) -> None:
    """Writes the card into a directory."""
    path = os.path.join(directory, CARD_FILE)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(render(facts))


def render(facts: Facts) -> str:
    """Returns the card: metadata as YAML, and sections as Markdown."""
    metadata = yaml.safe_dump(
        _metadata(facts), sort_keys=False, allow_unicode=True
    )
    sections = {
        "Data": _data(facts),
        "Metrics": _metrics(facts),
        "Size and time": _sizes(facts),
        "Limits": _limits(facts),
        "How to call it": _calls(facts),
        "Versions": _software(facts),
        "Licence": _licence(facts),
    }
    parts = [
        f"# {_name(facts)}",
        f"Task: `{facts.task}` ({facts.summary}). The model is a SavedModel "
        "that takes raw text. It was trained and exported with etcmodel; using "
        "it needs only TensorFlow and tensorflow-text.",
    ]
    for title, text in sections.items():
        parts += [f"## {title}", text]
    return f"---\n{metadata}---\n\n" + "\n\n".join(parts) + "\n"


def _name(facts: Facts) -> str:
    return f"etcmodel {facts.task}"


def _metadata(facts: Facts) -> dict[str, Any]:
    """Returns the hub's metadata; see huggingface.co/docs/hub/model-cards."""
    made: dict[str, Any] = {}
    if facts.license and {*facts.license} <= _IDENTIFIER:
        made["license"] = facts.license
    else:
        made["license"] = "other"
        made["license_name"] = facts.license or "unknown"
    if facts.languages:
        made["language"] = [*facts.languages]
    made["library_name"] = "etcmodel"
    if facts.pipeline_tag:
        made["pipeline_tag"] = facts.pipeline_tag
    made["tags"] = ["etcmodel", "tensorflow", "saved-model", "long-documents"]
    measured = {
        name: value
        for name, value in _finite(facts.versions[-1].metrics or {}).items()
        if not name.endswith("loss")
    }
    if measured:
        task = facts.pipeline_tag or facts.task
        made["model-index"] = [
            {
                "name": _name(facts),
                "results": [
                    {
                        "task": {"type": task},
                        "dataset": {
                            "type": "validation",
                            "name": "Validation records",
                        },
                        "metrics": [
                            {"type": name, "name": name, "value": value}
                            for name, value in measured.items()
                        ],
                    }
                ],
            }
        ]
    return made


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Drops metrics that are infinite or NaN."""
    return {x: float(y) for x, y in metrics.items() if math.isfinite(y)}


def _data(facts: Facts) -> str:
    number = "a number of examples that is not known"
    if facts.num_examples is not None:
        number = f"{facts.num_examples:,} examples"
    text = f"Training data: {number} of the task `{facts.task}`"
    if facts.steps is not None:
        text += f"; training steps: {facts.steps:,}"
        if facts.batch_size:
            text += f", each of {facts.batch_size:,} {facts.unit}"
    text += "."
    if facts.num_examples is None:
        text += " The export found no training records of this checkpoint."
    return text


def _metrics(facts: Facts) -> str:
    *others, exported = facts.versions
    if exported.metrics is not None:
        text = "Measured"
        if facts.num_validated is not None:
            text += f" on {facts.num_validated:,} validation examples"
        text += f" when the model was exported, with {exported.weights} weights"
        if others:
            names = " and ".join(x.weights for x in others)
            text += f" and, to compare, with {names}"
        columns = {x.weights: _finite(x.metrics) for x in facts.versions}
        if facts.main_metric:
            text += f". `{facts.main_metric}` selected the checkpoint"
        return f"{text}.\n\n" + _table("metric", columns)
    text = "No metric was measured when the model was exported."
    if others:
        text = (
            f"The metric of the {exported.weights} weights was not measured: "
            "the model was exported without validation data."
        )
    run_metrics = _finite(facts.run_metrics)
    if not run_metrics:
        return text
    text += (
        " The validation of the training measured, with the weights of the "
        "checkpoint"
    )
    if facts.main_metric:
        text += f"; `{facts.main_metric}` selected it"
    return f"{text}:\n\n" + _table("metric", {"value": run_metrics})


def _table(title: str, columns: Mapping[str, Mapping[str, float]]) -> str:
    """Returns a Markdown table: column -> row -> number."""
    names = dict.fromkeys(name for x in columns.values() for name in x)
    rows = [[title, *columns], ["---"] * (len(columns) + 1)]
    for name in names:
        values = (x.get(name) for x in columns.values())
        shown = ["" if x is None else f"{x:.4g}" for x in values]
        rows.append([name, *shown])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _sizes(facts: Facts) -> str:
    columns = {
        x.weights: {
            "weights, MB": x.num_bytes / _MEGABYTE,
            "time of a request, ms": 1000 * x.seconds,
        }
        for x in facts.versions
    }
    text = (
        f"Parameters: {facts.num_parameters:,}. Layers of the encoder: "
        f"{facts.num_layers}. Size of all files of the model: "
        f"{facts.num_bytes / _MEGABYTE:.4g} MB.\n\n"
        "The time is the median of a few runs of the small request below, on "
        "the machine that exported the model.\n\n" + _table("", columns)
    )
    if facts.versions[-1].weights != "float32":
        text += (
            f"\n\nLarge matrices are stored as {facts.versions[-1].weights}, "
            "and converted when they are read; the model computes in float32."
        )
    return text


def _limits(facts: Facts) -> str:
    scripts = ", ".join(f"{x} {y:.0f} %" for x, y in facts.scripts.items())
    case = "is lower-cased" if facts.lower_case else "keeps its case"
    text = (
        f"* Length: {facts.length}\n"
        f"* Languages: the vocabulary has {facts.vocab_size:,} tokens; their "
        f"letters are {scripts or 'of no script'}. Text in other scripts "
        f"becomes unknown tokens or single characters. Text {case}."
    )
    if not facts.languages:
        text += " The languages of the training data are not known."
    return text


def _calls(facts: Facts) -> str:
    """Returns example requests, for HTTP and in Python."""
    url = f"http://localhost:8501/v1/models/{facts.task}:predict"
    parts = [
        "Serve this directory with TensorFlow Serving, as version 1 of the "
        f"model `{facts.task}`, or with `python -m etcmodel serve "
        "--saved_model=.`. A request has one or more records:"
    ]
    parts += [
        _fence("bash", f"curl {url} -d {shlex.quote(_body(facts, name))}")
        for name in _shown(facts)
    ]
    name = [*_shown(facts)][-1]
    parts += [
        "In Python, in this directory:",
        _fence("python", _program(name, facts.requests[name])),
        "docs/serving.md of etcmodel describes inputs and answers.",
    ]
    return "\n\n".join(parts)


def _shown(facts: Facts) -> list[str]:
    """Returns the signatures that take raw text; `text` comes last."""
    return [x for x in ("serving_default", "text") if x in facts.requests]


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _plain(value: Any) -> Any:
    """Converts arrays and bytes to lists and strings."""
    if isinstance(value, np.ndarray | list):
        return [*map(_plain, value)]
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return value.item() if isinstance(value, np.generic) else value


def _body(facts: Facts, signature: str) -> str:
    """Returns a request as JSON."""
    columns = {x: _plain(y) for x, y in facts.requests[signature].items()}
    rows = [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]
    body = {"instances": rows}
    if signature != "serving_default":
        body = {"signature_name": signature, **body}
    return json.dumps(body, ensure_ascii=False)


def _program(signature: str, request: Mapping[str, np.ndarray]) -> str:
    """Returns a Python program that calls a signature."""
    lines = [
        "import tensorflow as tf",
        "import tensorflow_text  # Registers operations of the model.",
        "",
        'model = tf.saved_model.load(".")',
        f'answers = model.signatures["{signature}"](',
    ]
    for name, value in request.items():
        dtype = tf.as_dtype(value.dtype).name
        lines.append(f"    {name}=tf.constant({_plain(value)!r}, tf.{dtype}),")
    lines += [
        ")",
        "for name, value in answers.items():",
        "    print(name, value.numpy())",
    ]
    return "\n".join(lines)


def _software(facts: Facts) -> str:
    return "Exported with " + ", ".join(
        f"{name} {version}" for name, version in facts.software.items()
    )


def _licence(facts: Facts) -> str:
    if facts.license:
        return f"The model has the licence {facts.license}."
    return (
        "The licence is not known. Set it with `--license` of `export`. It "
        "depends on the training data and on the weights that the training "
        "started from."
    )


def scripts_of(tokens: Iterable[str]) -> dict[str, float]:
    """Returns script -> share of the letters in tokens, in percent.

    Leaves out special tokens, such as "[PAD]" and "<s>". Scripts with less than
    one percent become "others".
    """
    counts = collections.Counter(
        script
        for token in tokens
        if not _is_special(token)
        for character in token
        if (script := _script_of(character))
    )
    total = sum(counts.values())
    shares = {x: 100 * y / total for x, y in counts.most_common()}
    found = {x: y for x, y in shares.items() if y >= _MIN_SHARE}
    rest = sum(y for y in shares.values() if y < _MIN_SHARE)
    return {**found, "others": rest} if rest else found


def _is_special(token: str) -> bool:
    return len(token) > 2 and (token[0], token[-1]) in (("[", "]"), ("<", ">"))


def _script_of(character: str) -> str | None:
    """Returns the script of a letter; None for other characters."""
    # The names of letters begin with their script: "LATIN SMALL LETTER A".
    if not unicodedata.category(character).startswith("L"):
        return None
    first, *words = unicodedata.name(character, "").split() or [""]
    if first in _WIDTHS and words:
        first = words[0]
    if not first or first in _NO_SCRIPTS:
        return None
    return "Chinese" if first == "CJK" else first.title()
