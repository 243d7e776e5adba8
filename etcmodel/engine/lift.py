"""Lifts weights: initializes ETC or ReadTwice from BERT, RoBERTa, etc."""

import dataclasses
import os
import pathlib
from typing import NamedTuple

from absl import logging

from etcmodel.engine import paths
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.atomic import atomic_directory
from etcmodel.pipeline.options import option

# Model -> options that only this model has.
_OF_ONE_MODEL = {
    "etc": (
        "absolute_positions",
        "question_words_in_global",
        "own_text_bias",
        "local_radius",
    ),
}


@dataclasses.dataclass(kw_only=True)
class Options:
    """Options of `lift`.

    Attributes:
        from_: directory of the source model, or a file in it: a TensorFlow
            checkpoint, or weights such as model.fp16.safetensors.
        output_dir: the directory to create.
        model: model to initialize: "etc", or "read_twice" with both reads.
        preset: supplies values that BERT does not have, such as the radius of
            local attention: tiny, small, base, base_shared or large
            for ETC; tiny, base, base_cls or base_sts for ReadTwice.
        vocab_file: the vocabulary of the new model; by default the one beside
            the weights. Tokens in both vocabularies keep their embeddings. For
            RoBERTa, give the equivalent SentencePiece model.
        absolute_positions: positions of an ETC encoder: "none", as in the
            paper, needs long pre-training; "paragraph" uses BERT's position
            embeddings and restarts them in every paragraph, after the
            question's positions.
        question_words_in_global: initialize the global tokens of a question
            with the embeddings of its words. ETC only.
        global_tokens: initial embeddings of the other global tokens: "mean" for
            the mean of all embeddings, "cls" for the embedding of [CLS], "keep"
            for the source's own embeddings.
        own_text_bias: ETC only. Added to a global token's attention scores for
            the tokens of its own sentence. With 3, they get most of its
            attention.
        local_radius: number of tokens on each side that a long token attends
            to; by default the preset's.
        num_hidden_layers: number of layers; by default all. BERT's first layers
            are used, without its head if layers are left out. For ReadTwice,
            this is the number of layers of the first read; BERT's next layers
            initialize the second read, as in the paper's "SS, 10L".
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


class Result(NamedTuple):
    """Files that `lift` wrote, and how the weights matched.

    Attributes:
        output_dir: directory of the weights.
        vocab_file: the vocabulary to preprocess data with.
        num_used: number of the source's weights that were used.
        num_lifted: number of the encoder's weights that were initialized.
        num_unmatched: number of tokens without an embedding in the source.
        notes: warnings and remarks for the user.
    """

    output_dir: str
    vocab_file: str
    num_used: int
    num_lifted: int
    num_unmatched: int
    notes: list[str]


def lift(options: Options, reporter: Reporter | None = None) -> Result:
    """Initializes an encoder with the weights of another model.

    Raises:
        UserError: an option cannot be used, or the weights cannot be lifted.
    """
    options_lib.check(options)
    paths.check(options)
    for kind, names in _OF_ONE_MODEL.items():
        for field in dataclasses.fields(Options):
            if (
                field.name in names
                and kind != options.model
                and getattr(options, field.name) != field.default
            ):
                raise UserError(
                    f"`{field.name}` needs `model={kind}`. Set that, or leave "
                    f"out `{field.name}`."
                )
    with atomic_directory(options.output_dir, options.overwrite) as folder:
        try:
            report, vocabulary = _lift(
                options, folder, reporter or Reporter("quiet")
            )
        except (ValueError, FileNotFoundError) as error:
            raise UserError(f"`from={options.from_}`: {error}") from error
    return Result(
        options.output_dir,
        os.path.join(options.output_dir, vocabulary),
        len(report.used),
        len(report.lifted),
        len(report.unmatched),
        list(report.notes),
    )


def _lift(options: Options, folder: str, reporter: Reporter):
    """Writes the weights; returns the report and the vocabulary's name."""
    from etcmodel import checkpoints
    from etcmodel import models
    from etcmodel.feature_utils.text import tokenizers
    from etcmodel.models import pretraining_heads
    from etcmodel.training import lifted

    source, is_etc = options.from_, options.model == "etc"
    reporter.note(f"Reading {source}.")
    bert = checkpoints.read_bert(source)
    vocab_file = options.vocab_file or bert.vocab_file
    if vocab_file is None:
        raise UserError(
            f"`from={source}` has no vocabulary file for tokenizing. "
            "Give `vocab_file`: BERT's vocab.txt, or for RoBERTa the "
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
    config_class, model_class, save = kinds[options.model]
    layers = options.num_hidden_layers
    if layers is not None:
        if not is_etc:
            preset = config_class.from_preset(options.preset)
            layers = min(
                layers + preset.second_read_num_new_layers,
                bert.sizes["num_hidden_layers"],
            )
        bert = bert.first_layers(layers)
    changes = {"vocab_file": vocab_file}
    if is_etc:
        changes["question_words_in_global"] = options.question_words_in_global
    for name in ("local_radius", "num_hidden_layers"):
        # None means the preset's value, or all layers.
        if getattr(options, name) is not None:
            changes[name] = getattr(options, name)
    config = checkpoints.lifted_config(
        bert,
        config_class,
        options.preset,
        options.absolute_positions,
        **changes,
    )
    model, head = model_class(config), None
    if bert.has_head:
        # Pre-training resumes with the source's head.
        head = pretraining_heads.make_language_model_head(
            config, layer_norm_epsilon=1e-12 if is_etc else 1e-3
        )
    reporter.note(f"Writing {options.output_dir}.")
    # The report's notes repeat the warnings, and are printed.
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        report = checkpoints.lift(
            model,
            bert,
            options.vocab_file,
            options.global_tokens,
            head,
            own_text_bias=options.own_text_bias,
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
