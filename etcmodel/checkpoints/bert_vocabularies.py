"""Vocabularies that come with the weights of BERT and similar encoders.

Row i of a token table belongs to piece i of the vocabulary. A model that is
lifted (initialized with BERT's weights) may need more pieces or another order:
global tokens have their own pieces, and padding has the id 0.
"""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from etcmodel import extras
from etcmodel.checkpoints import bert_configs
from etcmodel.checkpoints import vocabularies
from etcmodel.checkpoints.vocabularies import Vocabulary
from etcmodel.feature_utils.text import tokenizer_settings

_WORDPIECE, _SENTENCEPIECE = "vocab.txt", "sentencepiece.bpe.model"
_BPE, _TOKENIZER = "vocab.json", "tokenizer.json"
_TOKENIZER_CONFIG = tokenizer_settings.CONFIG_FILE
_ADDED, _SPECIAL_TOKENS = "added_tokens.json", "special_tokens_map.json"
# Tokenizers that split text into words differently from BERT's.
_OTHER_TOKENIZERS = {
    "BertJapaneseTokenizer": "splits words with a dictionary",
    "BertweetTokenizer": "is BPE with rules for tweets",
    "PhobertTokenizer": "is BPE on words that another program splits",
}
# Names in Hugging Face's files -> BERT's pieces.
_SPECIAL = {
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
}
_NEW_IDS = (
    "Token ids are those of the written SentencePiece model, not of the "
    "source; rows were reordered."
)
# An added token's id may exceed the vocabulary's size by this much.
_MAX_GAP = 100_000


class LiftedVocabulary(NamedTuple):
    """The vocabulary of a lifted model; see `Vocabulary`.

    Attributes:
        name: name of its file.
        content: content of its file.
        rows: each piece's row in the source's token table; -1 for a new piece.
        notes: differences from the source's vocabulary.
    """

    name: str
    content: bytes
    pieces: Sequence[str]
    special_ids: dict[str, int]
    rows: Sequence[int]
    notes: Sequence[str]


def find_file(folder: str) -> str | None:
    """Returns the path of the vocabulary in a directory, or None."""
    return bert_configs.find(
        folder, _WORDPIECE, _SENTENCEPIECE, _BPE, _TOKENIZER
    )


def read_source(path: str) -> Vocabulary:
    """Reads the vocabulary of a token table, including added tokens.

    The file is `vocab.txt`, `sentencepiece.bpe.model`, `vocab.json` or
    `tokenizer.json`. If a line of `vocab.txt` is repeated, the last repetition
    is the token, as in BERT's own code; each line keeps its row. Special tokens
    get BERT's names if files in the same directory say which tokens they are.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not such a vocabulary, or its tokenizer is not
            supported.
    """
    path = os.fspath(path)
    folder = os.path.dirname(path)
    settings = bert_configs.read_optional_json(folder, _TOKENIZER_CONFIG)
    name = str(settings.get("tokenizer_class")).removesuffix("Fast")
    if name in _OTHER_TOKENIZERS:
        raise ValueError(
            f"{path} is for {name}, which {_OTHER_TOKENIZERS[name]}, so texts "
            "would be split differently here. Use a model with BERT's "
            "tokenizer."
        )
    added = _added_tokens(folder)
    if not path.endswith(".json"):
        content = _read_file(path)
        if b"\x00" in content:
            return _read_sentencepiece(path, content, settings, added)
        kind, pieces = "wordpiece", _read_lines(path, content)
    else:
        kind, pieces = _read_json(path)
    pieces, notes = _with_added(path, pieces, added)
    if kind == "wordpiece":
        _name_special_tokens(pieces, folder, notes)
        _make_unique(pieces, notes)
        _spell_out_spaces(pieces, notes)
    return Vocabulary(path, pieces, {}, kind, notes)


def _read_json(path) -> tuple[str, list[str]]:
    content = bert_configs.read_json(path)
    kind = "bpe"
    model = content.get("model")
    # In `vocab.json`, the key "model" is an ordinary piece with an id.
    if isinstance(model, dict):
        kind = str(model.get("type", "BPE")).lower()
        if kind not in ("wordpiece", "bpe"):
            raise ValueError(
                f"{path} holds a vocabulary of the type {model['type']}, "
                f"expected WordPiece or BPE. Add the {_SENTENCEPIECE} of the "
                "model to its directory."
            )
        if model.get("continuing_subword_prefix") not in (None, "", "##"):
            raise ValueError(
                f"{path}: pieces inside a word begin with "
                f"{model['continuing_subword_prefix']!r}, expected '##'."
            )
        content = model.get("vocab")
    if not isinstance(content, dict) or sorted(
        map(repr, content.values())
    ) != sorted(map(repr, range(len(content)))):
        raise ValueError(
            f"{path} is not a vocabulary. Expected a JSON object of pieces and "
            "their ids from 0, like RoBERTa's."
        )
    return kind, sorted(content, key=content.get)


def _read_file(path) -> bytes:
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(f"{path} does not exist. Check the path.")
    with tf.io.gfile.GFile(path, "rb") as stream:
        return stream.read()


def _read_lines(path, content) -> list[str]:
    """Splits a text file into lines; keeps the white space in tokens."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (byte {error.start}). Expected a "
            "WordPiece vocabulary, one token a line."
        ) from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


# Name of a file -> function that finds the added tokens in its content, and a
# description of the format for error messages.
_ADDED_TOKENS = {
    _ADDED: (
        lambda content: {int(i): token for token, i in content.items()},
        "a JSON object of tokens and their ids",
    ),
    _TOKENIZER_CONFIG: (
        lambda content: {
            int(i): token["content"]
            for i, token in content.get("added_tokens_decoder", {}).items()
        },
        "added_tokens_decoder to be an object of ids and tokens, each with "
        "`content`",
    ),
    _TOKENIZER: (
        lambda content: {
            int(token["id"]): token["content"]
            for token in content.get("added_tokens") or ()
        },
        "added_tokens to be a list of tokens, each with `id` and `content`",
    ),
}


def _added_tokens(folder) -> dict[int, str]:
    """Returns id -> token for the tokens that Hugging Face's files add."""
    added = {}
    for name, (find_tokens, expected) in _ADDED_TOKENS.items():
        content = bert_configs.read_optional_json(folder, name)
        try:
            tokens = find_tokens(content)
            is_right = all(
                i >= 0 and isinstance(token, str) for i, token in tokens.items()
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            is_right = False
        if not is_right:
            raise _damaged(folder, name, expected)
        added |= tokens
    return added


def _damaged(folder, name, expected) -> ValueError:
    return ValueError(
        f"{os.path.join(folder, name)}: expected {expected}. Download the "
        "model's file again."
    )


def _with_added(path, pieces, added) -> tuple[list[str], list[str]]:
    """Inserts added tokens at their ids; returns all pieces, and notes."""
    pieces, known, notes = list(pieces), set(pieces), []
    number = len(pieces)
    for i, token in sorted(added.items()):
        if token in known:
            continue
        if i - len(pieces) > _MAX_GAP:
            raise ValueError(
                f"{path} has {number} tokens, but the files beside it add "
                f"{token!r} with the id {i}, expected at most "
                f"{len(pieces) + _MAX_GAP}."
            )
        pieces += [f"[no-token-{k}]" for k in range(len(pieces), i + 1)]
        if i < number:
            notes.append(f"The token {pieces[i]!r} is renamed to {token!r}.")
        pieces[i] = token
    if len(pieces) > number:
        notes.append(
            f"{len(pieces) - number} tokens were added after the {number} of "
            f"{path}."
        )
    return pieces, notes


def _special_tokens(folder) -> dict[str, str]:
    found = {}
    for file in (_TOKENIZER_CONFIG, _SPECIAL_TOKENS):
        content = bert_configs.read_optional_json(folder, file)
        for name in _SPECIAL.keys() & content.keys():
            token = content[name]
            if isinstance(token, dict):
                token = token.get("content", token)
            if not isinstance(token, str | None):
                raise _damaged(
                    folder,
                    file,
                    f"{name} to be a token, or an object with `content`",
                )
            found[name] = token
    return {name: found[name] for name in _SPECIAL if found.get(name)}


def _name_special_tokens(pieces, folder, notes) -> None:
    """Renames special tokens to BERT's names."""
    for name, token in _special_tokens(folder).items():
        own = _SPECIAL[name]
        if token == own or token not in pieces:
            continue
        i = pieces.index(token)
        if own in pieces:
            pieces[pieces.index(own)] = token
        pieces[i] = own
        notes.append(f"The {name} {token!r} is written as {own!r}.")


def _make_unique(pieces, notes) -> None:
    """Renames repeated tokens, except the last occurrence of each."""
    last = {piece: i for i, piece in enumerate(pieces)}
    repeated = [i for i, piece in enumerate(pieces) if last[piece] != i]
    for i in repeated:
        pieces[i] = f"[line-{i + 1}]"
    if repeated:
        notes.append(
            f"{len(repeated)} lines of the vocabulary are repeated further "
            "down, and the last repetition is used: line "
            f"{', '.join(str(i + 1) for i in repeated[:5])}."
        )


def _spell_out_spaces(pieces, notes) -> None:
    """Writes white space in tokens as code points; no text has such tokens."""
    found = [i for i, piece in enumerate(pieces) if re.search(r"\s|^$", piece)]
    for i in found:
        pieces[i] = (
            re.sub(r"\s", lambda x: f"[U+{ord(x[0]):04X}]", pieces[i])
            or f"[line-{i + 1}]"
        )
    if found:
        notes.append(
            f"{len(found)} tokens contain white space, so texts never contain "
            f"them. They are written as code points: {pieces[found[0]]}."
        )


def _parse_model(path, content):
    # Imported here, since only this type of vocabulary needs the library.
    extras.require("sentencepiece")
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    try:
        sentencepiece.SentencePieceProcessor(model_proto=content)
        return sentencepiece_model_pb2.ModelProto.FromString(content)
    except RuntimeError:
        raise ValueError(
            f"{path} is neither a WordPiece vocabulary (text, one token a "
            "line) nor a SentencePiece model, or it is damaged."
        ) from None


def _read_sentencepiece(path, content, settings, added) -> Vocabulary:
    """Returns the pieces of XLM-RoBERTa or CamemBERT.

    The tokenizers of these models add pieces in front of the file's pieces.
    """
    model = _parse_model(path, content)
    own = [x.piece for x in model.pieces]
    if own[:1] == ["<pad>"]:
        # This package's tokenizers use the ids in the file.
        return vocabularies.read_vocabulary(path)
    folder = os.path.dirname(path)
    config = bert_configs.read_optional_json(folder, "config.json")
    name = (
        settings.get("tokenizer_class")
        or config.get("tokenizer_class")
        or config.get("model_type", "")
    )
    layouts = {
        "camembert": (
            "<s>NOTUSED",
            "<pad>",
            "</s>NOTUSED",
            "<unk>",
            "<unk>NOTUSED",
            *own[1:],
        ),
        "xlmroberta": ("<s>", "<pad>", "</s>", "<unk>", *own[3:]),
    }
    key = str(name).lower().replace("-", "").split("tokenizer")[0]
    if key not in layouts or own[:3] != ["<unk>", "<s>", "</s>"]:
        problem = (
            f"the tokenizer is {name!r}" if name else "no tokenizer is set"
        )
        raise ValueError(
            f"{path}: the ids of its pieces are unknown, because {problem}. "
            "Expected the tokenizer_class of "
            f"XLM-RoBERTa or CamemBERT in {_TOKENIZER_CONFIG}."
        )
    pieces = [*layouts[key], "<mask>"]
    special = set(_special_tokens(folder).values())
    for i, token in added.items():
        if token in special and pieces[i : i + 1] != [token]:
            raise ValueError(
                f"{path}: {token!r} has the id {i} in the files beside it, "
                f"expected {', '.join(pieces[i : i + 1]) or 'no token'}, as in "
                f"{name}."
            )
    pieces, notes = _with_added(path, pieces, added)
    return Vocabulary(path, pieces, {}, "sentencepiece", notes)


def lift_vocabulary(source: Vocabulary) -> LiftedVocabulary:
    """Makes a lifted model's vocabulary from the result of `read_source`.

    Adds the pieces that global tokens need. Example: a cased BERT's
    `[PAD] [unused1] [UNK] ...` gets the new last pieces `[unused0]` and
    `[unused2]` to `[unused4]`. The source has no rows for them.

    Raises:
        ValueError: the source lacks BERT's special tokens, or this package has
            no tokenizer for it.
    """
    # Imported here, since only reading vocabularies needs TensorFlow Text.
    from etcmodel.feature_utils.text import tokenizers

    if source.kind == "bpe":
        raise ValueError(vocabularies.NO_TOKENIZER.format(source.path))
    if source.kind == "sentencepiece":
        return _lift_sentencepiece(source, tokenizers)
    name = os.path.basename(source.path)
    name = _WORDPIECE if name.endswith(".json") else name
    pieces, notes = list(source.pieces), list(source.notes)
    rows = list(range(len(pieces)))
    missing = {*_SPECIAL.values()} - {*pieces} - {"[MASK]"}
    if missing:
        raise ValueError(
            f"{source.path} lacks {', '.join(sorted(missing))}. Expected a "
            "WordPiece vocabulary with BERT's special tokens, or a "
            f"{_SPECIAL_TOKENS} that names them."
        )
    padding = pieces.index("[PAD]")
    if padding:
        for x in (pieces, rows):
            x[0], x[padding] = x[padding], x[0]
        notes.append(
            f"[PAD] gets the id 0, and {pieces[padding]} gets {padding}."
        )
    needed = tokenizers.WORDPIECE_SPECIAL_TOKENS
    new = [x for x in needed.values() if x not in source.pieces]
    if new:
        notes.append(
            f"The vocabulary has no {', '.join(new)}, which global tokens "
            "need. They are added at its end."
        )
    pieces, rows = [*pieces, *new], [*rows, *(-1 for _ in new)]
    content = "".join(f"{piece}\n" for piece in pieces).encode()
    special_ids = _ids(pieces, needed | tokenizers.WORDPIECE_OPTIONAL_TOKENS)
    return LiftedVocabulary(name, content, pieces, special_ids, rows, notes)


def _ids(pieces, names) -> dict[str, int]:
    numbers = {piece: i for i, piece in enumerate(pieces)}
    return {x: numbers[piece] for x, piece in names.items() if piece in numbers}


def _lift_sentencepiece(source, tokenizers) -> LiftedVocabulary:
    """Makes a vocabulary with all special pieces that the tokenizer needs."""
    content = _read_file(source.path)
    if source.special_ids:
        name, pieces = os.path.basename(source.path), source.pieces
        rows = range(len(pieces))
        return LiftedVocabulary(
            name, content, pieces, source.special_ids, rows, source.notes
        )
    model = _parse_model(source.path, content)
    needed = tokenizers.SENTENCEPIECE_SPECIAL_TOKENS
    mask = tokenizers.SENTENCEPIECE_OPTIONAL_TOKENS["mask"]
    # Special piece of the result -> piece of the source, None for a new piece.
    special: dict[str, str | None] = {
        "<pad>": "<pad>",
        **dict.fromkeys(needed.values()),
        needed["cls"]: "<s>",
        needed["separator"]: "</s>",
        mask: "<mask>",
        "<unk>": "<unk>",
    }
    kind = type(model).SentencePiece
    words = [x for x in model.pieces[3:] if x.piece not in special]
    # In the source, added tokens follow <mask>.
    added = source.pieces[::-1][: source.pieces[::-1].index("<mask>")][::-1]
    pieces = [kind(piece=x, type=kind.CONTROL) for x in special]
    pieces[-1].type = kind.UNKNOWN
    pieces += [kind(piece=x.piece, score=x.score, type=x.type) for x in words]
    pieces += [kind(piece=x, type=kind.USER_DEFINED) for x in added]
    del model.pieces[:]
    model.pieces.extend(pieces)
    trainer = model.trainer_spec
    names = list(special)
    trainer.vocab_size = len(pieces)
    trainer.pad_id, trainer.unk_id = 0, names.index("<unk>")
    trainer.bos_id, trainer.eos_id = names.index("<s>"), names.index("</s>")
    numbers = {x: i for i, x in enumerate(source.pieces)}
    rows = [numbers.get(x, -1) for x in special.values()]
    pieces = [x.piece for x in pieces]
    rows += [numbers[x] for x in pieces[len(special) :]]
    return LiftedVocabulary(
        "sentencepiece.model",
        model.SerializeToString(),
        pieces,
        _ids(pieces, needed | {"mask": mask}),
        rows,
        [*source.notes, _NEW_IDS],
    )


def write_vocabulary(vocab_file: str | os.PathLike, folder: str) -> str:
    """Writes the vocabulary of a lifted model; returns its path.

    If the tokenizer's settings (case, accents, Chinese characters) are known,
    writes them to `tokenizer_config.json`.

    Raises:
        FileNotFoundError: `vocab_file` does not exist.
        ValueError: see `read_source` and `lift_vocabulary`.
    """
    source = read_source(vocab_file)
    vocabulary = lift_vocabulary(source)
    path = os.path.join(folder, vocabulary.name)
    with open(path, "wb") as stream:
        stream.write(vocabulary.content)
    if source.kind == "wordpiece":
        settings = tokenizer_settings.read_settings(
            os.path.dirname(source.path)
        )
        if settings != tokenizer_settings.TokenizerSettings():
            tokenizer_settings.write_settings(folder, settings)
    return path
