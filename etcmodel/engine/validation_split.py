"""Divides records into training and validation records."""

import collections
import functools
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError


def validation_ids(
    records,
    dataset,
    fraction: float,
    seed: int,
    reporter: Reporter,
) -> set[str]:
    """Chooses a fraction of records for validation, by their ids.

    Stratifies by the dataset's `stratum`; with too few records for that, draws
    at random and reports a note. The only record of a stratum stays in the
    training data.
    """
    from sklearn import model_selection

    stratum = getattr(dataset, "stratum", lambda record: None)
    strata = {record.id: stratum(record) for record in records}
    counts = collections.Counter(strata.values())
    ids = [x for x, y in strata.items() if y is None or counts[y] > 1]
    found = [strata[x] for x in ids]
    number = round(fraction * len(strata))
    if not 0 < number < len(ids):
        raise UserError(
            f"`validation_fraction={fraction:g}` of {len(strata)} records "
            f"leaves {number} to validate with and {len(strata) - number} to "
            "learn from."
        )
    has_strata = None not in found
    is_even = min(number, len(ids) - number) >= len(set(found))
    if has_strata and not is_even:
        reporter.note(
            f"Note: the validation split is not stratified: {number} of "
            f"{len(ids)} records are too few for {len(set(found))} labels."
        )
    _, chosen = model_selection.train_test_split(
        ids,
        test_size=number,
        random_state=seed,
        stratify=found if has_strata and is_even else None,
    )
    return set(chosen)


def choose(
    records: Iterable[Any],
    dataset: Any,
    fraction: float,
    seed: int,
    reporter: Reporter,
) -> dict[str, Callable[[Any], bool]]:
    """Returns split, train and dev -> a function that tells its records."""
    chosen = validation_ids(records, dataset, fraction, seed, reporter)
    return {
        split: functools.partial(_is_of_split, chosen, split)
        for split in ("train", "dev")
    }


def _is_of_split(chosen: set[str], split: str, record) -> bool:
    return (record.id in chosen) == (split == "dev")
