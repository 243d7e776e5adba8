"""What a TPU lacks in a compiled function."""

import re

import tensorflow as tf

from testing import attention_cases

_ON_HOST = re.compile("(?i)pyfunc|host|callback")
# A size that is known only when a program runs has an upper bound: f32[<=8,2].
_DYNAMIC = re.compile(r"\[[^\]]*<=")
_OF_HLO = (
    ("a size unknown until it runs", _DYNAMIC),
    ("a transfer to or from the host", re.compile(r" (infeed|outfeed)\(")),
    ("a transfer to or from the host", re.compile(r" (send|recv)(-done)?\(")),
    ("64-bit floats", re.compile(r"\bf64\[")),
    # TPUs have this one, too.
    ("a custom call", re.compile(r'custom_call_target="(?!TopK")')),
)


def offenders(function, *args) -> list[str]:
    """Lists what a TPU lacks in the graph and in the HLO of a function.

    Args:
        function: a `tf.function` with `jit_compile=True`.
        *args: its arguments. All sizes must be known.

    Returns:
        What it lacks, and the names of the operations.
    """
    found = of_graph(function.get_concrete_function(*args).graph)
    hlo = function.experimental_get_compiler_ir(*args)(stage="hlo")
    for line in hlo.splitlines():
        for what, pattern in _OF_HLO:
            if pattern.search(line):
                name = re.search(r'op_name="([^"]*)"', line)
                found.append(f"{what}: {name[1] if name else line.strip()}")
    return list(dict.fromkeys(found))


def of_graph(graph) -> list[str]:
    """Lists what a TPU lacks in a graph, before XLA compiles it."""
    found = []
    for operation in attention_cases.all_operations(graph):
        if _ON_HOST.search(operation.type):
            found.append(f"runs on the host: {operation.name}")
        for tensor in (*operation.inputs, *operation.outputs):
            if tensor.dtype == tf.string:
                found.append(f"a string: {tensor.name}")
    return found
