"""Splits records into training and validation records."""

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
    """Returns the ids of the records drawn for validation.

    Stratifies by the dataset's `stratum`, such as the label. With too few
    records for that, draws without strata and reports a note. A record that is
    alone in its stratum stays in the training data.
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
            f"gives {number} for validation and {len(strata) - number} for "
            "training. Choose another fraction."
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
    """Returns "train" and "dev" -> a function that selects their records."""
    chosen = validation_ids(records, dataset, fraction, seed, reporter)
    return {
        split: functools.partial(_is_of_split, chosen, split)
        for split in ("train", "dev")
    }


def _is_of_split(chosen: set[str], split: str, record) -> bool:
    return (record.id in chosen) == (split == "dev")
