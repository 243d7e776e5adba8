"""`predict`: predicts for the records of a data file with a SavedModel."""

import dataclasses
import sys

from etcmodel.engine import predict
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.pipeline.options import option

DESCRIPTION = """
Reads a data file in the official format of the task, runs a SavedModel on its
raw text, and writes the answers in the official submission format:

  hotpotqa  {"answer": {id: text}, "sp": {id: [[title, sentence], ...]}}
  nq        {"predictions": [...]}, with scores
  wikihop, answer, read_twice_triviaqa  {id: answer}

or as JSON Lines:

  openkp    {"url": url, "KeyPhrases": [[text], ...]}
  classify  {"id": id, "label": label, "probabilities": {...}}
  select    {"id": id, "selected": [[paragraph, unit], ...], "scores": ...}
  read_twice_narrativeqa  {"id": "document: question", "answer": text}

Prints the official metrics if the file has answers. The output file appears
only when it is complete.

A .txt or .md file is one document: blank lines separate paragraphs, and a line
that begins with "# " is the title of the paragraph after it. --query asks about
it, except for openkp; the id is the file's name.

With --print_request, prints a request for `serve` or TensorFlow Serving instead
of answering it.
"""

EXAMPLE = """
python -m etcmodel predict --saved_model=saved_model --input=dev.json \\
    --output=predictions.json
python -m etcmodel predict --saved_model=saved_model --input=letter.md \\
    --query="Who lives in Krakow?" --output=answer.json
python -m etcmodel predict --saved_model=saved_model --input=dev.json \\
    --print_request > request.json
"""

COMMON_FLAGS = (
    "output",
    "query",
    "metrics",
    "overwrite",
)


@dataclasses.dataclass(kw_only=True)
class Options(predict.Options):
    """Options of `predict`.

    Attributes:
        output: the prediction file to write; needed without `print_request`.
        print_request: print the JSON body of the request that asks a server
            about the records, at most 256, and exit. No file is written.
    """

    output: str = option("", path="new_file")
    print_request: bool = False


def run(options: Options) -> None:
    """Predicts records and prints counts and metrics."""
    if options.print_request:
        for name in ("output", "metrics"):
            if getattr(options, name):
                raise UserError(
                    f"`{name}` does not apply to `print_request`, which writes "
                    "no file, but prints. Leave one of them out."
                )
        request = predict.request(options, Reporter(out=sys.stderr))
        # Notes go to stderr, so that the output is the request.
        for note in request.notes:
            print(note, file=sys.stderr)
        print(request.body.decode("ascii"))
        return
    if not options.output:
        raise UserError(
            "predict needs `output` (the prediction file to write) or "
            "`print_request`."
        )
    result = predict.predict(options, Reporter())
    if result.skipped:
        print(result.skipped)
        print(
            "They are not in the metrics. Official scorers count them as wrong."
        )
    print(f"Wrote {result.num_predictions} answers to {result.output}.")
    for name, count in result.counts.items():
        if count:
            print(f"  {count:10d}  {name.replace('_', ' ')}")
    if result.num_gold:
        print(f"Metrics of {result.num_gold} records with an answer:")
    for name, value in result.metrics.items():
        print(f"{name}: {value:.6g}")
    for path in result.pictures:
        print(f"Wrote {path}.")
