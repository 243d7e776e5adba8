"""The result of `explain`: a record's attention map."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from etcmodel.errors import UserError

if TYPE_CHECKING:
    from etcmodel.inspection.attention_map import AttentionMap


class Explanation:
    """A record as a model reads it: its tokens, and their attention.

    A notebook shows an explanation as a page.

    Tokens are numbered: the global tokens, then those of the text. With
    ReadTwice, the segments and the memories follow.

    Attributes:
        map: the `inspection.attention_map.AttentionMap`.
    """

    def __init__(self, attention_map: "AttentionMap"):
        self.map = attention_map

    @property
    def tokens(self) -> list[str]:
        """The names of all nodes, in the order of their numbers."""
        found = self.map
        number = found.num_tokens + len(found.segments) + len(found.memories)
        return [found.label(i) for i in range(number)]

    @property
    def layers(self) -> Mapping[str, list[str]]:
        """Name of each layer -> names of its heads."""
        return {x.label: list(x.heads) for x in self.map.layers}

    def reads(
        self, token: int, layer: str | None = None, head: str = "average"
    ) -> dict[int, float]:
        """Returns the nodes a token attends to most: number -> probability.

        Probabilities below 0.4 %, or 1 % for a single head, are left out.

        Args:
            token: the number of the token.
            layer: name of a layer, from `layers`; by default the average of all
                layers.
            head: "average", or the number of a head from "1".

        Raises:
            UserError: the token, the layer or the head does not exist.
        """
        labels = [x.label for x in self.map.layers]
        if layer is not None and layer not in labels:
            raise UserError(
                f"`layer` is {layer!r}. Choose one of: {', '.join(labels)}."
            )
        index = None if layer is None else labels.index(layer)
        try:
            return self.map.reads(token, index, head)
        except ValueError as error:
            raise UserError(str(error)) from error

    def save(self, path: str | os.PathLike, token: int | None = None) -> None:
        """Writes the page (.html) or a picture (.png, .svg, .pdf).

        Args:
            path: the file; an existing one is replaced.
            token: number of the token whose attention a picture shows; by
                default a token of the answer.

        Raises:
            UserError: the file cannot be written, or its ending is not
                supported.
        """
        from etcmodel.engine import paths
        from etcmodel.inspection import map_page
        from etcmodel.inspection import map_picture

        path = os.fspath(path)
        paths.check_picture("path", path, or_page=True)
        if path.lower().endswith(".html"):
            map_page.write_page(self.map, path)
            return
        try:
            map_picture.draw_map(self.map, path, token)
        except ValueError as error:
            raise UserError(str(error)) from error

    def _repr_html_(self) -> str:
        from etcmodel.inspection import map_page

        return map_page.make_frame(self.map)

    def __repr__(self) -> str:
        found = self.map
        return (
            f"Explanation({found.title!r}, {found.num_tokens} tokens, "
            f"{len(found.layers)} layers)"
        )
