"""Graphs for inference only."""

import contextlib

from etcmodel.ops import compilation
from etcmodel.ops import custom_gradients
from etcmodel.ops import shared_graphs


@contextlib.contextmanager
def for_inference(inline: bool = False):
    """Builds graphs for inference only, to export a model.

    They contain no hand-written gradients, about which loading a SavedModel
    warns ("unsaved custom gradients"), and nothing compiled by XLA, which some
    servers switch off. It applies to all graphs built within it, in all
    threads; see `custom_gradients.forward_only` about their gradients. Example:

        with for_inference():
            model.export("served/1")

    Args:
        inline: whether graphs contain the operations of each layer instead of
            calls of shared functions. LiteRT's converter needs it; the graph
            is larger.
    """
    with (
        compilation.elementwise_jit(False),
        custom_gradients.forward_only(),
        shared_graphs.inlined() if inline else contextlib.nullcontext(),
    ):
        yield
