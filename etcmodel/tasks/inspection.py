"""What `inspect` shows of one record."""

import dataclasses
from collections.abc import Sequence

from etcmodel.feature_utils.side_inputs import GlobalLocalTransformerSideInputs


@dataclasses.dataclass(frozen=True)
class Inspection:
    """One record as it reaches the model.

    Attributes:
        summary: lines for the screen, as pairs of a name and a value.
        side_inputs: the masks and labels, of a batch of one.
        long_labels: what to call each long token that is not padding.
        global_labels: what to call each global token that is not padding.
    """

    summary: Sequence[tuple[str, object]]
    side_inputs: GlobalLocalTransformerSideInputs
    long_labels: Sequence[str]
    global_labels: Sequence[str]

    def text(self) -> str:
        """The summary as aligned lines."""
        width = max(len(name) for name, _ in self.summary)
        return "\n".join(
            f"{name + ':':{width + 2}}{value}" for name, value in self.summary
        )
