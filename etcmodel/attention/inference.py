"""Graphs that answer, and are not trained."""

import contextlib

from etcmodel.attention import custom_gradients
from etcmodel.attention import elementwise_jit


@contextlib.contextmanager
def for_inference():
    """Builds graphs for answering only, as a model is exported with.

    They hold no gradients written by hand, of which loading a SavedModel warns
    ("unsaved custom gradients"), and nothing compiled by XLA, which a server
    may have switched off. Example:

        with for_inference():
            model.export("served/1")

    It counts where a graph is built, in all threads. See
    `custom_gradients.forward_only` about gradients of such graphs.

    Yields:
        Nothing.
    """
    with (
        elementwise_jit.elementwise_jit(False),
        custom_gradients.forward_only(),
    ):
        yield
