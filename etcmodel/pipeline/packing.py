"""Packs several records into one example of limited size."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from etcmodel.pipeline.example_schema import ExampleSchema
from etcmodel.readers.records import Source

Values = Mapping[str, Any]
# Size of a group of records; a group must fit into the memory of a worker.
_GROUP_RECORDS = 4096


def group_of(source: Source) -> tuple[str, int]:
    """Returns a record's group; only records of the same group share examples.

    The group depends only on the record's file and its position in the file, so
    the examples do not depend on how workers divide the files.
    """
    return source.path, source.index // _GROUP_RECORDS


class ExamplePacker:
    """Packs records until they fill an example.

    A packed example concatenates the values of whole records. The schema's
    `packing` limits the number of values of some fields. Fields of segments are
    padded with zeros to their limit:

        packer = ExamplePacker(schema, {"num_blocks_per_example": 4})
        packer.add(of_3_blocks)  # -> []
        packer.add(of_2_blocks)  # -> []
        packer.add(of_1_block)   # -> [the first and the third]
        packer.flush()           # -> [the second]

    Without `packing`, every record is one example.

    Args:
        schema: the schema of the examples.
        sizes: the preprocessing configuration.
        max_open: maximum number of incomplete examples. Beyond it, `add`
            returns the fullest one, measured by the first limit.
    """

    def __init__(
        self,
        schema: ExampleSchema,
        sizes: Mapping[str, int],
        max_open: int = 32,
    ):
        self._schema = schema
        packing = schema.packing
        limits = packing.limits if packing else {}
        self._limits = {name: sizes[size] for name, size in limits.items()}
        self._num_blocks = (
            sizes[packing.blocks] if packing and packing.blocks else None
        )
        self._max_open = max_open
        # Incomplete examples: number of values for each limit, and records.
        self._open: list[tuple[list[int], list[Values]]] = []

    def add(self, values: Values) -> list[Values]:
        """Adds a record; returns the examples that are now complete.

        Raises:
            ValueError: the record alone exceeds a limit.
        """
        if not self._limits:
            return [values]
        size = [len(values[name]) for name in self._limits]
        if not self._fits(size):
            raise ValueError(
                f"A record of {dict(zip(self._limits, size, strict=True))} "
                f"does not fit into an example of {self._limits}. Divide it."
            )
        # Best fit: the fullest example with room for the record.
        used, records = max(
            (x for x in self._open if self._fits(_sum(x[0], size))),
            key=lambda x: x[0],
            default=([0] * len(size), []),
        )
        if records:
            self._open = [x for x in self._open if x[1] is not records]
        used = _sum(used, size)
        self._open.append((used, [*records, values]))
        if any(
            x == limit
            for x, limit in zip(used, self._limits.values(), strict=True)
        ):
            return [self._pack(self._open.pop()[1])]
        if len(self._open) > self._max_open:
            fullest = max(self._open, key=lambda x: x[0])
            self._open.remove(fullest)
            return [self._pack(fullest[1])]
        return []

    def flush(self) -> list[Values]:
        """Returns the examples that are still incomplete."""
        packed = [self._pack(records) for _, records in self._open]
        self._open = []
        return packed

    def _fits(self, size: list[int]) -> bool:
        return all(
            x <= limit
            for x, limit in zip(size, self._limits.values(), strict=True)
        )

    def _pack(self, records: list[Values]) -> Values:
        return {
            name: self._join(name, [record[name] for record in records])
            for name in records[0]
        }

    def _join(self, name: str, values: list[Any]) -> Any:
        """Joins the values of a field; pads fields of segments to the limit."""
        field = self._schema.fields.get(name)
        if field is None or field.axis == "one":
            return values
        # [number, ...]
        joined = np.concatenate([np.asarray(x) for x in values])
        if field.axis != "block":
            return joined
        missing = self._num_blocks - len(joined)
        return np.pad(joined, [[0, missing]] + [[0, 0]] * (joined.ndim - 1))


def _sum(left: list[int], right: list[int]) -> list[int]:
    return [x + y for x, y in zip(left, right, strict=True)]
