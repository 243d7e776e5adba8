"""`lift`: converts weights of BERT, RoBERTa, etc. to initial weights."""

from etcmodel.engine import lift
from etcmodel.engine.progress import Reporter

DESCRIPTION = """
Initializes an ETC or ReadTwice encoder with the weights of BERT, RoBERTa,
XLM-RoBERTa, CamemBERT, DistilBERT or ELECTRA, as in the ETC paper's Appendix D.
The encoder has the same number of layers and heads, hidden size and
intermediate size. --from is a directory on disk; nothing is downloaded. It has
config.json and safetensors files, as Hugging Face's library writes them, or a
TensorFlow checkpoint of BERT with its bert_config.json. docs/warm_starts.md
lists the models that can be lifted.

The output is a checkpoint in the format of the original code, its
configuration, and the vocabulary to preprocess data with. If the source has a
head for masked language modelling, the checkpoint has it, too. Special tokens
that the vocabulary lacks are added to it. lift.txt accounts for every weight.
`train --init_checkpoint=DIR` starts from the checkpoint.
"""

EXAMPLE = """
hf download google-bert/bert-base-uncased --local-dir=bert-base-uncased
python -m etcmodel lift --from=bert-base-uncased --output_dir=lifted \\
    --absolute_positions=paragraph --question_words_in_global
"""

COMMON_FLAGS = (
    "absolute_positions",
    "question_words_in_global",
    "num_hidden_layers",
)


Options = lift.Options


def run(options: Options) -> None:
    """Lifts weights and prints how to use them."""
    result = lift.lift(options, Reporter())
    print(
        f"{result.num_used} weights of {options.from_} were lifted into "
        f"{result.num_lifted} weights in {result.output_dir}. Its lift.txt "
        "accounts for each. Preprocess data with "
        f"--vocab_file={result.vocab_file}."
    )
    if result.num_unmatched:
        print(
            f"{result.num_unmatched} tokens of the vocabulary have no "
            "embedding in the source and are initialized at random."
        )
    for note in result.notes:
        print(note)
