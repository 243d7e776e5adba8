"""Several texts in one example of limited size."""

from collections.abc import Mapping

import tensorflow as tf


class ExamplePacker:
    """Puts stored texts together until they fill an example.

    A text is a `tf.train.Example` of integers and strings, and a packed example
    has the values of several, one after the other. Texts stay whole. Of some
    features there is a limit to the number of values:

        packer = ExamplePacker({"block_ids": 4})
        packer.add(of_3_blocks)  # -> []
        packer.add(of_2_blocks)  # -> []
        packer.add(of_1_block)   # -> [the first and the third]
        packer.flush()           # -> [the second]
    """

    def __init__(
        self,
        limits: Mapping[str, int],
        fill: str | None = None,
        max_open: int = 32,
    ):
        """Creates the packer.

        Args:
            limits: name of a feature -> how many values an example has at most.
            fill: name of a feature of `limits` that is filled up with zeros to
                its limit, and all other integers in proportion.
            max_open: how many examples may wait for more texts; the fullest of
                more, by the first of the limits, is let go.
        """
        self._limits = dict(limits)
        self._fill = fill
        self._max_open = max_open
        # Pairs of the numbers of values and the texts.
        self._open: list[tuple[list[int], list[tf.train.Example]]] = []

    def add(self, serialized: bytes) -> list[bytes]:
        """Adds a text.

        Args:
            serialized: a serialized `tf.train.Example`.

        Returns:
            What is full now, serialized.

        Raises:
            ValueError: the text is beyond a limit by itself.
        """
        text = tf.train.Example.FromString(serialized)
        size = [
            len(text.features.feature[name].int64_list.value)
            for name in self._limits
        ]
        if not self._fits(size):
            raise ValueError(
                f"A text of {dict(zip(self._limits, size, strict=True))} does "
                f"not fit into an example of {self._limits}."
            )
        # The fullest into which it fits.
        used, texts = max(
            (x for x in self._open if self._fits(_sum(x[0], size))),
            key=lambda x: x[0],
            default=([0] * len(size), []),
        )
        if texts:
            self._open = [x for x in self._open if x[1] is not texts]
        used = _sum(used, size)
        self._open.append((used, [*texts, text]))
        if any(
            x == limit
            for x, limit in zip(used, self._limits.values(), strict=True)
        ):
            return [self._pack(self._open.pop())]
        if len(self._open) > self._max_open:
            fullest = max(self._open, key=lambda x: x[0])
            self._open.remove(fullest)
            return [self._pack(fullest)]
        return []

    def flush(self) -> list[bytes]:
        """Lets go what is not full.

        Returns:
            All that is left, serialized.
        """
        packed = [self._pack(x) for x in self._open]
        self._open = []
        return packed

    def _fits(self, size: list[int]) -> bool:
        return all(
            x <= limit
            for x, limit in zip(size, self._limits.values(), strict=True)
        )

    def _pack(self, waiting) -> bytes:
        used, texts = waiting
        packed = tf.train.Example()
        for name, first in texts[0].features.feature.items():
            kind = first.WhichOneof("kind")
            values = getattr(packed.features.feature[name], kind).value
            for text in texts:
                values.extend(getattr(text.features.feature[name], kind).value)
            if self._fill is not None and kind == "int64_list":
                number = used[list(self._limits).index(self._fill)]
                each = len(values) // number
                missing = self._limits[self._fill] - number
                values.extend([0] * (each * missing))
        return packed.SerializeToString(deterministic=True)


def _sum(left: list[int], right: list[int]) -> list[int]:
    return [x + y for x, y in zip(left, right, strict=True)]
