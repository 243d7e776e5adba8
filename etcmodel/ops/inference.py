"""Builds graphs that are used for inference only."""

import contextlib

from etcmodel.ops import compilation
from etcmodel.ops import custom_gradients
from etcmodel.ops import shared_graphs


@contextlib.contextmanager
def for_inference(inline: bool = False):
    """Builds graphs for inference only, to export a model.

    The graphs contain no hand-written gradients: loading a SavedModel would
    warn about them ("unsaved custom gradients"). Nor do they contain functions
    compiled by XLA, which some servers switch off. The setting applies to all
    graphs built in the block, in all threads. For gradients of these graphs,
    see `custom_gradients.forward_only`. Example:

        with for_inference():
            model.export("served/1")

    Args:
        inline: whether graphs contain copies of each layer's operations instead
            of calls of shared functions. LiteRT's converter needs the copies;
            they make the graph larger.
    """
    with (
        compilation.elementwise_jit(False),
        custom_gradients.forward_only(),
        shared_graphs.inlined() if inline else contextlib.nullcontext(),
    ):
        yield
