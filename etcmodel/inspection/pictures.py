"""Describes one record as the model sees it, for `inspect`."""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from etcmodel.feature_utils import GlobalLocalTransformerSideInputs
from etcmodel.models import EtcConfig
from etcmodel.models.etc.side_inputs import SideInputs
from etcmodel.pipeline.example_maker import ExampleMaker
from etcmodel.pipeline.preprocessor import EtcPreprocessor
from etcmodel.pipeline.preprocessor import RecordView
from etcmodel.pipeline.preprocessor import on_host


@dataclasses.dataclass(frozen=True)
class Inspection:
    """One record as the model sees it, or its first window.

    Attributes:
        summary: lines for the screen, as pairs of a name and a value.
        side_inputs: the masks and labels, as a batch of one.
        long_labels: names of long tokens that are not padding.
        global_labels: names of global tokens that are not padding.
    """

    summary: Sequence[tuple[str, object]]
    side_inputs: GlobalLocalTransformerSideInputs
    long_labels: Sequence[str]
    global_labels: Sequence[str]

    def text(self) -> str:
        """Returns the summary as aligned lines."""
        return as_lines(self.summary)


def as_lines(pairs: Sequence[tuple[str, object]]) -> str:
    """Formats pairs of a name and a value as aligned lines."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(
        f"{name + ':':{width + 2}}{value}" for name, value in pairs
    )


def inspect(
    examples: ExampleMaker,
    record: Any,
    model_config: EtcConfig,
    model_options: Any = None,
) -> Inspection:
    """Describes one record as the model sees it.

    `model_options` default to those of the task. Raises a RecordError if the
    record cannot be encoded.
    """
    preprocessor = examples.preprocessor
    made = examples.preprocess([record])
    view = RecordView(on_host(made), 0)
    side_inputs = SideInputs(
        local_radius=model_config.local_radius,
        relative_pos_max_distance=model_config.relative_pos_max_distance,
        use_hard_g2l_mask=model_config.use_hard_g2l_mask,
        use_hard_l2g_mask=model_config.use_hard_l2g_mask,
        **{
            "structure": "paragraphs",
            **examples.spec.make_model(model_options).encoder_options(),
        },
    )({name: x[:1] for name, x in made.layout.features.items()})
    sources = view.long_sources[0]
    used = np.flatnonzero(sources[:, 0] >= 0)
    ids = view.features["long_token_ids"][0, : used[-1] + 1 if used.size else 0]
    texts = [
        text.decode("utf-8", "replace")
        for text in preprocessor.tokenizer.id_to_token(ids).numpy()
    ]
    return Inspection(
        summary=[
            *summarize(preprocessor, record, view),
            ("long length", preprocessor.config.long_length),
        ],
        side_inputs=GlobalLocalTransformerSideInputs(
            **{
                field.name: side_inputs.get(field.name)
                for field in dataclasses.fields(
                    GlobalLocalTransformerSideInputs
                )
            }
        ),
        long_labels=texts,
        global_labels=_global_labels(preprocessor, record, view, texts),
    )


def summarize(
    preprocessor: EtcPreprocessor, record: Any, view: RecordView
) -> list[tuple[str, object]]:
    """Describes a record and its counts, as pairs of a name and a value."""
    return [
        ("record", f"{record.index} (id {record.id})"),
        *preprocessor.describe(record),
        *counted(preprocessor.labels(record, view, "predict").counts),
    ]


def counted(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Formats counts, each with the number of items that were cut.

    Example: `{"units": 3, "units_cut": 1}` gives `[("units", "3, of which 1
    cut")]`.
    """
    return [
        (name.replace("_", " "), _with_cut(counts, name))
        for name in counts
        if not name.endswith("_cut")
    ]


def _with_cut(counts, name: str) -> str:
    """Formats a count and, if known, how many of the items were cut."""
    cut = counts.get(f"{name}_cut")
    return f"{counts[name]}" + ("" if cut is None else f", of which {cut} cut")


def _global_labels(preprocessor, record, view, texts) -> list[str]:
    """Returns the name of every global token that is not padding.

    A global token that stands for a long token has its text. The task names the
    global tokens of groups and units.
    """
    place = {
        tuple(source): text
        for source, text in zip(
            view.long_sources[0].tolist(), texts, strict=False
        )
    }
    spec = preprocessor.engine.spec
    if spec.blocks is not None:
        used = np.count_nonzero(view.features["global_token_ids"][0])
        return [f"block {i}" for i in range(used)]
    labels = []
    for source in view.global_sources[0].tolist():
        section, group, unit, token = source
        if section < 0:
            break
        labels.append(
            place.get(tuple(source), "")
            if token >= 0
            else preprocessor.name_global(
                record, spec.sections[section].name, group, unit
            )
        )
    return labels
