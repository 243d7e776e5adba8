"""`lift`: starts training from the weights of BERT, RoBERTa and the like."""

from etcmodel.engine import lift

DESCRIPTION = """
Initializes an ETC or ReadTwice encoder with the weights of BERT, RoBERTa,
XLM-RoBERTa, CamemBERT, DistilBERT or ELECTRA, with the same number of layers,
width, heads and inner width (ETC paper, Appendix D). --from is a directory on
disk: nothing is downloaded. It holds config.json and safetensors files, as
Hugging Face's library writes them, or a TensorFlow checkpoint of BERT beside
its bert_config.json. docs/warm_starts.md lists what can be lifted.

The output is a checkpoint as the original code writes it, with the head of the
masked language model if the source has one, its configuration and the
vocabulary to preprocess data with. Tokens that the vocabulary lacks are added
to it. lift.txt lists what became of every weight.
`train --init_checkpoint=DIR` starts from it.
"""

EXAMPLE = """
hf download google-bert/bert-base-uncased --local-dir=bert-base-uncased
python -m etcmodel lift --from=bert-base-uncased --output_dir=lifted \\
    --absolute_positions=paragraph --question_words_in_global
"""


Options = lift.Options


def run(options: Options) -> None:
    """Lifts weights and prints how to use them."""
    result = lift.lift(options)
    print(
        f"{result.num_used} weights of {options.from_} were lifted into "
        f"{result.num_lifted} of {result.output_dir}; lift.txt there accounts "
        f"for each. Preprocess data with --vocab_file={result.vocab_file}."
    )
    if result.num_unmatched:
        print(
            f"{result.num_unmatched} tokens of the vocabulary have no "
            "embedding in the source and are initialized at random."
        )
    for note in result.notes:
        print(note)
