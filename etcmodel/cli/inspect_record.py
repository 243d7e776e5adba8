"""`inspect`: one record as a picture of who attends to whom."""

from etcmodel.engine import inspect_record

DESCRIPTION = """
Draws the four attention masks and the relative labels of one record as in
Figure 3 of the ETC paper, with the tokens on the axes, and prints what the
record consists of, how much of it was cut and how many links there are.
Sizes, masks and distances are those of --like, a run or preprocessed records,
or else those of the experiment.
"""

EXAMPLE = """
python -m etcmodel inspect --task=wikihop --input=train.json --record=0 \\
    --vocab_file=vocab.txt --output=record.png
"""


Options = inspect_record.Options


def run(options: Options) -> None:
    """Inspects a record, and prints its parts."""
    result = inspect_record.inspect_record(options)
    print(result.text)
    if result.tokenizer:
        print(result.tokenizer)
    print(f"The picture is in {result.picture}.")
