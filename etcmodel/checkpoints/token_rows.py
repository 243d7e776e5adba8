"""Finds the row of each token of a model in a source's token table."""

import os
from typing import NamedTuple

import numpy as np
from absl import logging

from etcmodel.checkpoints import bert_names
from etcmodel.checkpoints import bert_vocabularies
from etcmodel.checkpoints import vocabularies


class TokenRows(NamedTuple):
    """Rows of a source's token table for the tokens of a model.

    Attributes:
        path: the vocabulary of the model, or None.
        rows: `<int64>[tokens]`; -1 for tokens that the source lacks.
        special_ids: ids of special tokens by name, as in a tokenizer.
        num_used: number of the source's rows that belong to a token.
        unmatched: all tokens that the source lacks, except global tokens.
        notes: messages for the user.
    """

    path: str | None
    rows: np.ndarray
    special_ids: dict[str, int]
    num_used: int
    unmatched: list[str]
    notes: list[str]

    @property
    def global_ids(self) -> list[int]:
        """Ids of the global tokens."""
        names = vocabularies.GLOBAL_NAMES
        return [self.special_ids[x] for x in names if x in self.special_ids]


def count_tokens(source, vocab_file: str | os.PathLike | None) -> int:
    """Returns the number of tokens of a model that is lifted from a `Bert`.

    This is the number of rows if the package has no tokenizer for the
    vocabulary.
    """
    path = vocab_file or source.vocab_file
    if path is not None:
        own = bert_vocabularies.read_source(path)
        if own.kind != "bpe":
            return len(bert_vocabularies.lift_vocabulary(own).pieces)
    return source.sizes["vocab_size"]


def find_token_rows(source, vocab_file: str | os.PathLike | None) -> TokenRows:
    """Finds the row of every token of `vocab_file` in a `Bert`.

    None means the source's own vocabulary. `lift_vocabulary` adds missing
    special tokens to the vocabulary.

    Raises:
        ValueError: a vocabulary has more tokens than the table has rows, or
            does not belong to the source.
    """
    table = source.weights[bert_names.TOKENS]
    path = os.fspath(vocab_file or source.vocab_file or "")
    if not path:
        return TokenRows(None, np.arange(len(table)), {}, len(table), [], [])
    wanted = bert_vocabularies.read_source(path)
    target = bert_vocabularies.lift_vocabulary(wanted)
    known = wanted
    if source.vocab_file not in (None, path):
        known = bert_vocabularies.read_source(source.vocab_file)
    notes = [*_check_size(known, len(table), source.path), *target.notes]
    if known is wanted:
        rows = np.array(target.rows, np.int64)
    else:
        rows = vocabularies.match_pieces(known, target)
        notes += known.notes
    found = TokenRows(
        path, rows, target.special_ids, len(known.pieces), [], notes
    )
    unmatched = {int(x) for x in np.flatnonzero(rows < 0)}
    unmatched = sorted(unmatched - {*found.global_ids})
    found.unmatched.extend(target.pieces[i] for i in unmatched)
    if len(unmatched) > len(rows) / 2:
        raise ValueError(
            f"{path} does not belong to {source.path}: {len(unmatched)} of "
            f"{len(rows)} tokens are not in {known.path}, such as "
            f"{', '.join(found.unmatched[:5])}. Use the source's vocabulary."
        )
    _check_kinship(found, target.pieces, table, source.path)
    return found


def _check_size(known, num_rows, path) -> list[str]:
    """Raises a ValueError if rows are missing; returns a note on spare rows."""
    number = len(known.pieces)
    if number > num_rows:
        raise ValueError(
            f"{known.path} has {number} tokens, but {path} has {num_rows} rows "
            "for them. Use the vocabulary of these weights."
        )
    if number == num_rows:
        return []
    return [
        f"{num_rows - number} spare rows are left out: the token table has "
        f"{num_rows} rows, {known.path} has {number} tokens."
    ]


def _check_kinship(found, pieces, table, path) -> None:
    """Warns if the token table seems to belong to another vocabulary."""
    is_known = found.rows >= 0
    kinship = vocabularies.measure_kinship(
        [x for x, known in zip(pieces, is_known, strict=True) if known],
        table[found.rows[is_known]],
    )
    if kinship.is_chance:
        note = kinship.describe(found.path, path)
        logging.warning("%s", note)
        found.notes.append(note)
