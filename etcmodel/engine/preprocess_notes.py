"""Warns of unusual statistics of preprocessed records."""

from collections.abc import Mapping

# Share of unknown tokens that suggests a vocabulary of another language.
_MAX_UNKNOWN = 0.05


def make_notes(counts: Mapping[str, int], had_queries: bool) -> list[str]:
    """Returns notes about likely mistakes of the user.

    Args:
        counts: name of a statistic -> sum over all records, as in `stats.json`.
        had_queries: whether all training records are known to have queries.
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
    return notes
