"""Warns of unusual statistics of preprocessed records."""

from collections.abc import Mapping

# Share of unknown tokens that suggests a vocabulary of another language.
_MAX_UNKNOWN = 0.05
# Share of padding that makes training several times slower than it must be.
_MAX_PADDING = 0.8


def make_notes(
    counts: Mapping[str, int],
    had_queries: bool,
    num_examples: int = 0,
    num_tokens: int = 0,
) -> list[str]:
    """Returns notes about likely mistakes of the user.

    Args:
        counts: name of a statistic -> sum over all records, as in `stats.json`.
        had_queries: whether all training records are known to have queries.
        num_examples: number of training examples; 0 for other splits.
        num_tokens: number of tokens of the longest long and the longest global
            input together, to which training pads an example; 0 if unknown.
    """
    notes = []
    without = counts.get("records_without_query", 0)
    if had_queries and without:
        notes.append(
            f"Note: {without} records have no query, but the training records "
            "had queries. Is `query_field` missing?"
        )
    stored = counts.get("tokens_stored", 0)
    unknown = counts.get("tokens_unknown", 0)
    if unknown > _MAX_UNKNOWN * stored:
        notes.append(
            f"Note: {100 * unknown / stored:.0f} % of the tokens are unknown. "
            "The vocabulary may be of another language or case: see "
            "`vocab_file` and `lower_case`."
        )
    if num_tokens and stored < (1 - _MAX_PADDING) * num_examples * num_tokens:
        notes.append(
            f"Note: examples have {stored / num_examples:.0f} tokens on "
            f"average, but the longest has {num_tokens:,}, and training pads "
            "all to it. On CPUs and GPUs, training is faster with "
            "`train --params_override=task.trim_batches=true`."
        )
    return notes
