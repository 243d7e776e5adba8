"""`lift`: starts training from the weights of BERT, RoBERTa and the like."""

import dataclasses
import os
import pathlib

from absl import flags
from absl import logging

from etcmodel.errors import UserError
from etcmodel.pipeline.atomic import atomic_directory
from etcmodel.pipeline.options import option

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

# Model -> flags that others have no use for.
_OF_ONE_MODEL = {
    "etc": (
        "absolute_positions",
        "question_words_in_global",
        "own_text_bias",
        "local_radius",
    ),
}


@dataclasses.dataclass(kw_only=True)
class Flags:
    """The flags.

    Attributes:
        from_: the directory, or a file in it: a TensorFlow checkpoint, or
            weights such as model.fp16.safetensors.
        output_dir: directory to make.
        model: what to make: "etc", or "read_twice", both reads.
        preset: supplies values that BERT does not have, such as the radius of
            local attention: tiny, small, base, base_shared or large
            for ETC; tiny, base, base_cls or base_sts for ReadTwice.
        vocab_file: the vocabulary, if there is none beside the weights, or
            another one, whose tokens get the rows of the same tokens. For
            RoBERTa the equivalent SentencePiece model.
        absolute_positions: ETC only. "none", as in the paper, needs long
            pre-training; "paragraph" uses BERT's position embeddings and
            restarts them in every paragraph, after the question's positions.
        question_words_in_global: ETC only. Initialize the global tokens of a
            question with the embeddings of its words.
        global_tokens: initial embeddings of the other global tokens: "mean" for
            the mean of all tokens, "cls" for that of [CLS], "keep" for those of
            the source.
        own_text_bias: ETC only. Added to the attention scores of a global token
            for the tokens of its own sentence; with 3 these get most of its
            attention.
        local_radius: how many tokens a long token sees to each side; by default
            as in the preset.
        num_hidden_layers: by default all. Of ETC: use the first layers alone,
            without BERT's head. Of ReadTwice: layers of the first read; BERT's
            remaining layers initialize the second read, as in the paper's
            "SS, 10L".
        overwrite: replace the output directory if it exists.
    """

    from_: str = option(path="source")
    output_dir: str = option(path="new_directory")
    model: str = option("etc", one_of=["etc", "read_twice"])
    preset: str = "base"
    vocab_file: str | None = option(None, path="file")
    absolute_positions: str = option("none", one_of=["none", "paragraph"])
    question_words_in_global: bool = False
    global_tokens: str = option("mean", one_of=["mean", "cls", "keep"])
    own_text_bias: float = 0.0
    local_radius: int | None = None
    num_hidden_layers: int | None = None
    overwrite: bool = False


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command."""
    for kind, names in _OF_ONE_MODEL.items():
        for name in names if kind != flag_values.model else ():
            if flag_values[name].value != flag_values[name].default:
                raise UserError(f"--{name} needs --model={kind}.")
    source = flag_values["from"].value
    with atomic_directory(
        flag_values.output_dir, flag_values.overwrite
    ) as folder:
        try:
            report, vocabulary = _lift(flag_values, source, folder)
        except (ValueError, FileNotFoundError) as error:
            raise UserError(f"--from={source}: {error}") from error
    print(
        f"{len(report.used)} weights of {source} were lifted into "
        f"{len(report.lifted)} of {flag_values.output_dir}; lift.txt there "
        "accounts for each. Preprocess data with "
        f"--vocab_file={os.path.join(flag_values.output_dir, vocabulary)}."
    )
    if report.unmatched:
        print(
            f"{len(report.unmatched)} tokens of the vocabulary have no "
            "embedding in the source and are initialized at random."
        )
    for note in report.notes:
        print(note)


def _lift(flag_values, source, folder):
    """Fills the directory; returns the report and the vocabulary's name."""
    from etcmodel import checkpoints
    from etcmodel import models
    from etcmodel.feature_utils.text import tokenizers
    from etcmodel.models import pretraining_heads
    from etcmodel.training import lifted

    is_etc = flag_values.model == "etc"
    bert = checkpoints.read_bert(source)
    if is_etc and flag_values.num_hidden_layers is not None:
        bert = bert.first_layers(flag_values.num_hidden_layers)
    vocab_file = flag_values.vocab_file or bert.vocab_file
    if vocab_file is None:
        raise UserError(
            f"--from={source} has no vocabulary file for tokenizing. "
            "Give --vocab_file: BERT's vocab.txt, or for RoBERTa the "
            "equivalent SentencePiece model."
        )
    kinds = {
        "etc": (models.EtcConfig, models.EtcModel, checkpoints.save_etc),
        "read_twice": (
            models.ReadTwiceConfig,
            models.ReadTwiceModel,
            checkpoints.save_read_twice,
        ),
    }
    config_class, model_class, save = kinds[flag_values.model]
    changes = {"vocab_file": vocab_file}
    if is_etc:
        changes["question_words_in_global"] = (
            flag_values.question_words_in_global
        )
    for name in ("local_radius", "num_hidden_layers"):
        # Flags of the other model are None.
        if flag_values[name].value is not None:
            changes[name] = flag_values[name].value
    config = checkpoints.lifted_config(
        bert,
        config_class,
        flag_values.preset,
        flag_values.absolute_positions,
        **changes,
    )
    model, head = model_class(config), None
    if bert.has_head:
        # Pre-training resumes with the source's head.
        head = pretraining_heads.make_language_model_head(
            config, layer_norm_epsilon=1e-12 if is_etc else 1e-3
        )
    # Its warnings are in the report's notes, too, which are printed.
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        report = checkpoints.lift(
            model,
            bert,
            flag_values.vocab_file,
            flag_values.global_tokens,
            head,
            own_text_bias=flag_values.own_text_bias,
        )
    finally:
        logging.set_verbosity(verbosity)
    save(model, folder, head)
    written = checkpoints.write_vocabulary(vocab_file, folder)
    settings = tokenizers.make_tokenizer(written).settings
    vocabulary = os.path.basename(written)
    lifted.write(folder, vocabulary, source, settings)
    pathlib.Path(folder, "lift.txt").write_text(str(report), "utf-8")
    return report, vocabulary
