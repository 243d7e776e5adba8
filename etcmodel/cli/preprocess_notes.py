"""Notes about records that `preprocess` counted, for people to read."""

from collections.abc import Mapping

# A vocabulary of the language has a token for nearly all of its words.
_MAX_UNKNOWN = 0.05


def make_notes(counts: Mapping[str, int]) -> list[str]:
    """Returns what is likely to be a mistake.

    Args:
        counts: as in `stats.json`, summed over all records.
    """
    notes = []
    stored = counts.get("tokens_stored", 0)
    unknown = counts.get("tokens_unknown", 0)
    if unknown > _MAX_UNKNOWN * stored:
        notes.append(
            f"Note: {100 * unknown / stored:.0f} % of the tokens are unknown. "
            "The vocabulary may be of another language or case: see "
            "--vocab_file and --lower_case."
        )
    return notes
