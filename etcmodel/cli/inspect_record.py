"""`inspect`: shows a record and which tokens attend to which."""

from etcmodel.engine import inspect_record
from etcmodel.engine.progress import Reporter

DESCRIPTION = """
With --model_dir, shows one record as the trained model reads it: the text with
its global tokens and links, what was cut, the predicted and the gold answer,
and, for each token, whom it attends to and who attends to it, by layer and
head. The result is one HTML file (--output=map.html), or a picture.

Without a model, draws the four attention masks and the relative labels of one
record, as in Figure 3 of the ETC paper, with the tokens on the axes. Sizes,
masks and distances come from --like (a run or preprocessed records) if given,
otherwise from the experiment.

Both print the record's parts, how many were truncated, and the number of links.
"""

EXAMPLE = """
python -m etcmodel inspect --model_dir=runs/1 --input=dev.json --record=0 \\
    --output=map.html
python -m etcmodel inspect --task=wikihop --input=train.json --record=0 \\
    --vocab_file=vocab.txt --output=record.png
"""

COMMON_FLAGS = (
    "output",
    "model_dir",
    "record",
    "task",
    "vocab_file",
)


Options = inspect_record.Options


def run(options: Options) -> None:
    """Shows a record and prints its parts."""
    result = inspect_record.inspect_record(options, Reporter())
    print(result.text)
    if result.tokenizer:
        print(result.tokenizer)
    is_page = result.picture.lower().endswith(".html")
    print(f"The {'page' if is_page else 'picture'} is in {result.picture}.")
