"""Tests each source that docs/warm_starts.md lists as supported.

warm_starts_refused_test.py tests the rejected sources.
"""

import io
import os
import pathlib
import re
from typing import NamedTuple

import numpy as np
import safetensors
import sentencepiece
import tensorflow as tf
import tokenizers as hugging_face
from absl.testing import parameterized
from safetensors import numpy as safetensors_numpy
from safetensors import tensorflow as safetensors_tensorflow

from etcmodel.checkpoints import bert_files
from etcmodel.checkpoints import bert_vocabularies
from etcmodel.checkpoints import lifting
from etcmodel.feature_utils.text import tokenizers
from etcmodel.models import EtcModel
from testing import small_berts
from testing.warm_starts import LINES
from testing.warm_starts import WORDS
from testing.warm_starts import documented_sources
from testing.warm_starts import make_weights
from testing.warm_starts import rewrite
from testing.warm_starts import write

_TEXT, _ROWS = "one twos", [7, 10, 11, 12, 8]


class Source(NamedTuple):
    """The files of a source, and the expected encoding of a text.

    Attributes:
        path: the argument of `read_bert`.
        weights: common name -> array, as the source's own code reads them.
        text: the text to encode.
        rows: rows of the token table for the text, by the source's tokenizer,
            including the tokens that it adds at the start and the end.
        position: row of the position table for the first token.
        exact: whether gelu is the erf form.
        vocab_file: the model's vocabulary; None to make it from the source's.
        notes: patterns of notes that the report must contain.
    """

    path: str
    weights: dict
    text: str = _TEXT
    rows: list = _ROWS
    position: int = 0
    exact: bool = True
    vocab_file: str | None = None
    notes: tuple = ()


LIFTED = {}


def lifts(name):
    return lambda function: LIFTED.setdefault(name, function)


@lifts("BERT, cased or uncased")
def bert(folder):
    return Source(folder, write(folder, make_weights(head=True)))


@lifts("an encoder without a head")
def encoder_alone(folder):
    return Source(folder, write(folder, prefix=""))


@lifts("names with `module.`, `model.` or any other prefix")
def with_prefix(folder):
    weights = write(folder, make_weights(head=True))
    rewrite(folder, lambda name: "model.module." + name)
    return Source(folder, weights)


@lifts("old names, `LayerNorm.gamma` and `LayerNorm.beta`")
def old_names(folder):
    weights = write(folder)
    rewrite(
        folder,
        lambda x: x.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ),
    )
    return Source(folder, weights)


@lifts("several safetensors files and their index")
def shards(folder):
    weights = write(folder)
    path = os.path.join(folder, "model.safetensors")
    tensors = safetensors_numpy.load_file(path)
    os.remove(path)
    index = {
        x: f"model-{i % 2}.safetensors" for i, x in enumerate(sorted(tensors))
    }
    for file in set(index.values()):
        safetensors_numpy.save_file(
            {x: tensors[x] for x in tensors if index[x] == file},
            os.path.join(folder, file),
        )
    small_berts.write_json(
        folder, "model.safetensors.index.json", {"weight_map": index}
    )
    # The path of one of the two files means both.
    return Source(os.path.join(folder, "model-1.safetensors"), weights)


def write_as(folder, dtype, file):
    """Writes tensors as another dtype; returns the rounded arrays."""
    weights = write(folder)
    path = os.path.join(folder, "model.safetensors")
    tensors = safetensors_numpy.load_file(path)
    os.remove(path)
    tensors = {x: tf.constant(y.astype(dtype)) for x, y in tensors.items()}
    safetensors_tensorflow.save_file(tensors, os.path.join(folder, file))
    return {x: y.astype(dtype).astype(np.float32) for x, y in weights.items()}


@lifts("float16, in a file of another name that `--from` names")
def float16(folder):
    file = "model.fp16.safetensors"
    weights = write_as(folder, np.float16, file)
    return Source(os.path.join(folder, file), weights)


@lifts("bfloat16")
def bfloat16(folder):
    weights = write_as(folder, tf.bfloat16.as_numpy_dtype, "model.safetensors")
    return Source(folder, weights)


@lifts("tied tensors that are stored once")
def tied(folder):
    weights = write(folder, make_weights(head=True))
    # A file may store a shared tensor under any of its modules' names.
    names = {
        "bert.embeddings.word_embeddings.weight": "output.table.weight",
        "cls.predictions.bias": "cls.predictions.decoder.bias",
    }
    rewrite(folder, lambda x: names.get(x, x), metadata=names)
    return Source(folder, weights)


@lifts("only an output layer: `decoder.weight`, `decoder.bias`")
def decoder_alone(folder):
    weights = write(folder, make_weights(head=True))
    rewrite(
        folder,
        lambda x: {
            "bert.embeddings.word_embeddings.weight": (
                "cls.predictions.decoder.weight"
            ),
            "cls.predictions.bias": "cls.predictions.decoder.bias",
        }.get(x, x),
    )
    return Source(folder, weights)


@lifts("a head with an output layer of its own")
def untied(folder):
    weights = write(folder, make_weights(head=True), tie_word_embeddings=False)
    tensors = safetensors_numpy.load_file(folder + "/model.safetensors")
    tensors["cls.predictions.decoder.weight"] = np.ones([14, 8], np.float32)
    safetensors_numpy.save_file(tensors, folder + "/model.safetensors")
    return Source(folder, {x: y for x, y in weights.items() if "mlm" not in x})


@lifts("Google's checkpoint, with `bert_config.json`")
def google(folder):
    weights = make_weights(head=True)
    small_berts.write_original(folder, weights, vocab_size=len(LINES))
    small_berts.write_vocab(os.path.join(folder, "vocab.txt"), LINES)
    path = os.path.join(folder, "bert_model.ckpt")
    return Source(path, weights, exact=False)


@lifts("RoBERTa, with the equivalent SentencePiece model")
def roberta(folder):
    """Writes the model's pieces in another order, as RoBERTa spells them."""
    special = [
        *("<pad>", "</s>", "<s>", "<sep_0>", "<sep_1>"),
        *(f"<unused_{i}>" for i in range(39, 43)),
    ]
    model, _ = train_sentencepiece(
        folder, "gpt2.model", pad_id=0, unk_id=3, bos_id=2, eos_id=1,
        user_defined_symbols=special[3:],
    )  # fmt: skip
    pieces = [model.id_to_piece(i) for i in range(len(model))]
    words = [x for x in pieces if x not in (*special, "<unk>")][::-1]
    own = ["<s>", "<pad>", "</s>", "<unk>", *words, "<mask>"]
    weights = make_weights(len(own), types=1, head=True)
    write(
        folder, weights, None, "roberta.", head="lm_head.",
        model_type="roberta", pad_token_id=1, type_vocab_size=1,
    )  # fmt: skip
    ids = {x.replace("\u2581", "\u0120"): i for i, x in enumerate(own)}
    small_berts.write_json(folder, "vocab.json", ids)
    rows = [own.index(x) for x in model.encode("one two", out_type=str)]
    return Source(
        folder,
        weights,
        "one two",
        [0, *rows, 2],
        position=2,
        vocab_file=os.path.join(folder, "gpt2.model"),
    )


def train_sentencepiece(folder, name, **options):
    """Trains a tiny SentencePiece model; returns it and a text."""
    text = "one two three, twos and threes; caf\u00e9s of \uff11\uff12"
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text, "one two one two", "three cafes"] * 9),
        model_writer=stream,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    with open(os.path.join(folder, name), "wb") as file:
        file.write(stream.getvalue())
    return sentencepiece.SentencePieceProcessor(
        model_proto=stream.getvalue()
    ), text


def write_sentencepiece(folder, architecture, more, first, **config):
    """Writes a source whose pieces are ordered as in the architecture.

    Returns its weights, a text, and the text's ids.
    """
    name = "sentencepiece.bpe.model"
    model, text = train_sentencepiece(folder, name)
    weights = make_weights(len(model) + more, types=1, positions=60)
    write(
        folder, weights, None, "roberta.", model_type=architecture,
        pad_token_id=1, type_vocab_size=1, **config,
    )  # fmt: skip
    # The model has no piece for this character.
    text += " \u4e2d"
    ids = [3 if i == 0 else i + first for i in model.encode(text)]
    assert 3 in ids
    return weights, text, ids


@lifts("XLM-RoBERTa")
def xlm_roberta(folder):
    weights, text, ids = write_sentencepiece(folder, "xlm-roberta", 2, 1)
    return Source(folder, weights, text, [0, *ids, 2], position=2)


@lifts("CamemBERT")
def camembert(folder):
    weights, text, ids = write_sentencepiece(folder, "camembert", 5, 4)
    return Source(folder, weights, text, [5, *ids, 6], position=2)


@lifts("a BERT with XLM-RoBERTa's tokenizer")
def bert_with_sentencepiece(folder):
    weights, text, ids = write_sentencepiece(folder, "bert", 2, 1)
    small_berts.write_json(
        folder,
        "tokenizer_config.json",
        {"tokenizer_class": "XLMRobertaTokenizerFast"},
    )
    return Source(folder, weights, text, [0, *ids, 2])


_DISTILBERT = (
    ("bert.encoder.layer", "distilbert.transformer.layer"),
    ("bert.embeddings", "distilbert.embeddings"),
    ("attention.self.query", "attention.q_lin"),
    ("attention.self.key", "attention.k_lin"),
    ("attention.self.value", "attention.v_lin"),
    ("attention.output.dense", "attention.out_lin"),
    ("attention.output.LayerNorm", "sa_layer_norm"),
    ("intermediate.dense", "ffn.lin1"),
    ("output.dense", "ffn.lin2"),
    ("output.LayerNorm", "output_layer_norm"),
    ("cls.predictions.transform.LayerNorm", "vocab_layer_norm"),
    ("cls.predictions.transform.dense", "vocab_transform"),
    ("cls.predictions.bias", "vocab_projector.bias"),
)


@lifts("DistilBERT")
def distilbert(folder):
    weights = write(folder, make_weights(head=True))

    def rename(name):
        for own, other in _DISTILBERT:
            name = name.replace(own, other)
        is_none = "token_type" in name or "pooler" in name
        return None if is_none else name

    rewrite(folder, rename)
    small_berts.write_json(
        folder,
        "config.json",
        {
            "model_type": "distilbert",
            "vocab_size": len(LINES),
            "dim": 8,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 12,
            "activation": "gelu",
        },
    )
    del weights["embeddings.token_type_embeddings"]
    return Source(folder, weights)


@lifts("ELECTRA, if its embeddings are as wide as its layers")
def electra(folder):
    weights = write(folder, model_type="electra", embedding_size=8)
    rewrite(folder, lambda x: x.replace("bert.", "electra.").replace("electra.pooler", "discriminator_predictions"))  # noqa: E501  # fmt: skip
    return Source(folder, weights)


@lifts("a cased vocabulary: `[PAD] [unused1] ...`, also multilingual")
def cased(folder):
    lines = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "One", "##s"]
    weights = write(folder, make_weights(7), lines)
    notes = ("has no .unused0., .unused2., .unused3., .unused4.",)
    return Source(folder, weights, "Ones", [3, 5, 6, 4], notes=notes)


@lifts("a Chinese vocabulary, with white space among its tokens")
def chinese(folder):
    lines = [*LINES[:10], "\u2028", "\u3000", "\u4e2d", "\u56fd", "\u00a0"]
    weights = write(folder, make_weights(15), lines)
    notes = ("3 tokens contain white space.*U.2028",)
    rows = [7, 12, 13, 8]
    return Source(folder, weights, "\u4e2d\u56fd", rows, notes=notes)


@lifts("a vocabulary of Hugging Face's trainer: special tokens in any order")
def trained(folder):
    trainer = hugging_face.BertWordPieceTokenizer()
    trainer.train_from_iterator(
        ["one two three twos ones"] * 20,
        special_tokens=["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"],
        show_progress=False,
    )
    trainer.save_model(folder)
    weights = write(folder, make_weights(trainer.get_vocab_size()), None)
    text = "One twos threes, one"
    # The library adds [CLS] and [SEP] only with this post-processor.
    ids = trainer.encode(text, add_special_tokens=False).ids
    notes = ("PAD. gets the id 0, and .UNK. gets 2",)
    return Source(folder, weights, text, [3, *ids, 1], notes=notes)


@lifts("special tokens of other names: `special_tokens_map.json`")
def other_names(folder):
    lines = [*LINES[:7], "<s>", "</s>", "[MASK]", *WORDS, "[CLS]"]
    weights = write(folder, make_weights(15), lines)
    names = {"cls_token": "<s>", "sep_token": {"content": "</s>"}}
    small_berts.write_json(folder, "special_tokens_map.json", names)
    return Source(folder, weights, notes=("cls_token '<s>'",))


@lifts("a vocabulary in `tokenizer.json` alone")
def tokenizer_json(folder):
    weights = write(folder, lines=None)
    model = hugging_face.models.WordPiece(
        {x: i for i, x in enumerate(LINES)}, unk_token="[UNK]"
    )
    tokenizer = hugging_face.Tokenizer(model)
    tokenizer.normalizer = hugging_face.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = hugging_face.pre_tokenizers.BertPreTokenizer()
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    return Source(folder, weights)


@lifts("a table with more rows than tokens (padded to a multiple of 8)")
def padded(folder):
    weights = write(folder, make_weights(16))
    notes = ("^2 spare rows are left out.*16 rows.*14 tokens",)
    return Source(folder, weights, notes=notes)


@lifts("added tokens: `added_tokens.json` and the like")
def added_tokens(folder):
    weights = write(folder, make_weights(18))
    small_berts.write_json(folder, "added_tokens.json", {"four": 14, "one": 10})
    decoder = {"15": {"content": "five"}, "7": {"content": "[CLS]"}}
    config = {"added_tokens_decoder": decoder}
    small_berts.write_json(folder, "tokenizer_config.json", config)
    added = {
        "added_tokens": [{"id": 16, "content": "six"}],
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }
    small_berts.write_json(folder, "tokenizer.json", added)
    notes = ("3 tokens were added after the 14", "^1 spare rows")
    rows = [7, 16, 15, 14, 10, 8]
    return Source(folder, weights, "six five four one", rows, notes=notes)


@lifts("repeated lines")
def repeated(folder):
    lines = [*LINES[:10], "two", "one", "two", "three"]
    weights = write(folder, lines=lines)
    notes = ("1 lines of the vocabulary are repeated.*: line 11",)
    rows = [7, 12, 11, 13, 8]
    # Hugging Face's tokenizer also uses the last repetition of a line.
    path = os.path.join(folder, "vocab.txt")
    assert hugging_face.models.WordPiece.read_file(path)["two"] == 12
    return Source(folder, weights, "two one three", rows, notes=notes)


class WarmStartsTest(tf.test.TestCase, parameterized.TestCase):
    models = {}

    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.get_temp_dir(), "source")
        os.mkdir(self.folder)

    def make_model(self, config):
        """Returns a model, cached by its configuration to save time."""
        key = repr(config)
        if key not in self.models:
            self.models[key] = EtcModel(config)
        return self.models[key]

    def test_the_page_has_a_line_for_each_case(self):
        lifted, _ = documented_sources()
        # `model_garden_test` tests the Model Garden's line of the page.
        lifted = [x for x in lifted if not x.startswith("Model Garden")]
        self.assertCountEqual(LIFTED, lifted)

    @parameterized.named_parameters(
        (f.__name__, name) for name, f in LIFTED.items()
    )
    def test_lifts(self, name):
        source = LIFTED[name](self.folder)
        bert = bert_files.read_bert(source.path)
        self.assertCountEqual(source.weights, bert.weights)
        vocab_file = source.vocab_file
        changes = {"absolute_positions": "paragraph", "local_radius": 63}
        if vocab_file is None:
            folder = self.get_temp_dir()
            vocab_file = bert_vocabularies.write_vocabulary(
                bert.vocab_file, folder
            )
        tokenizer = tokenizers.make_tokenizer(vocab_file)
        config = lifting.lifted_config(
            bert, preset="tiny", vocab_file=source.vocab_file, **changes
        )
        self.assertEqual(tokenizer.vocab_size, config.vocab_size)
        model = self.make_model(config)
        report = lifting.lift(model, bert, source.vocab_file)
        ids = [
            tokenizer.special_ids["cls"],
            *tokenizer.tokenize(source.text).numpy(),
            tokenizer.special_ids["separator"],
        ]
        self.assertAllClose(
            small_berts.hidden_states(
                {
                    "embeddings.token_type_embeddings": np.zeros([1, 8]),
                    **source.weights,
                },
                small_berts.SIZES,
                source.rows,
                source.exact,
                source.position,
            ),
            small_berts.encode_long(model, ids),
            1e-5,
            1e-5,
        )
        for name, x in source.weights.items():
            if name.startswith("mlm"):
                self.assertAllEqual(x, bert.weights[name], name)
        for pattern in source.notes:
            self.assertTrue(
                any(re.search(pattern, x) for x in report.notes), report.notes
            )
        self.check_all_tensors_are_told(source, report)

    def check_all_tensors_are_told(self, source, report):
        """Checks that each tensor of the files is either used or left out."""
        folder = pathlib.Path(source.path)
        folder = folder if folder.is_dir() else folder.parent
        stored = []
        for file in folder.glob("*.safetensors"):
            with safetensors.safe_open(file, "numpy") as content:
                stored += content.keys()
        told = [*report.used, *report.left_out]
        self.assertLen(set(told), len(told))
        stored = stored or [x for x, _ in tf.train.list_variables(source.path)]
        self.assertCountEqual(stored, told)


if __name__ == "__main__":
    tf.test.main()
