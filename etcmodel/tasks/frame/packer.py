"""Several documents in one example of a fixed number of segments."""

import tensorflow as tf


class ExamplePacker:
    """Puts stored documents together until they fill an example.

    A document is a `tf.train.Example` of integers: `block_ids` has a value for
    each of its segments, every other feature the same number of values for
    each. Documents stay whole. Room that is left is filled with zeros:

        packer = ExamplePacker(num_blocks=4)
        packer.add(of_3_segments)  # -> []
        packer.add(of_2_segments)  # -> []
        packer.add(of_1_segment)   # -> [the first and the third]
        packer.flush()             # -> [the second, and zeros]
    """

    def __init__(self, num_blocks: int, max_open: int = 32):
        """Creates the packer.

        Args:
            num_blocks: segments of a packed example.
            max_open: how many examples may wait for more documents; the
                fullest of more is let go.
        """
        self._num_blocks = num_blocks
        self._max_open = max_open
        # Pairs of the number of segments and the documents.
        self._open: list[tuple[int, list[tf.train.Example]]] = []

    def add(self, serialized: bytes) -> list[bytes]:
        """Adds a document.

        Args:
            serialized: a serialized `tf.train.Example`.

        Returns:
            What is full now, serialized.

        Raises:
            ValueError: the document has more segments than an example.
        """
        document = tf.train.Example.FromString(serialized)
        size = len(document.features.feature["block_ids"].int64_list.value)
        if size > self._num_blocks:
            raise ValueError(
                f"A document of {size} segments does not fit into an example "
                f"of {self._num_blocks}."
            )
        # The fullest into which it fits.
        fitting = [x for x in self._open if x[0] + size <= self._num_blocks]
        used, documents = max(fitting, key=lambda x: x[0], default=(0, []))
        if documents:
            self._open = [x for x in self._open if x[1] is not documents]
        self._open.append((used + size, [*documents, document]))
        if used + size == self._num_blocks:
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

    def _pack(self, waiting) -> bytes:
        used, documents = waiting
        packed = tf.train.Example()
        for name in documents[0].features.feature:
            values = packed.features.feature[name].int64_list.value
            for document in documents:
                values.extend(document.features.feature[name].int64_list.value)
            each = len(values) // used
            values.extend([0] * (each * (self._num_blocks - used)))
        return packed.SerializeToString(deterministic=True)
