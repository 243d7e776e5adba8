"""`inspect`: draws which tokens of a record can attend to which."""

from etcmodel.engine import inspect_record

DESCRIPTION = """
Draws the four attention masks and the relative labels of one record, as in
Figure 3 of the ETC paper, with the tokens on the axes. Prints the record's
parts, how many were truncated, and the number of links.
Sizes, masks and distances come from --like (a run or preprocessed records) if
given, otherwise from the experiment.
"""

EXAMPLE = """
python -m etcmodel inspect --task=wikihop --input=train.json --record=0 \\
    --vocab_file=vocab.txt --output=record.png
"""


Options = inspect_record.Options


def run(options: Options) -> None:
    """Draws a record and prints its parts."""
    result = inspect_record.inspect_record(options)
    print(result.text)
    if result.tokenizer:
        print(result.tokenizer)
    print(f"The picture is in {result.picture}.")
