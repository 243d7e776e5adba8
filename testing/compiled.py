"""Finds operations in compiled code that a TPU cannot run, or runs slowly."""

import re

import tensorflow as tf

from testing import attention_cases

_ON_HOST = re.compile("(?i)pyfunc|host|callback")
_TRANSFER = re.compile(r" (infeed|outfeed|(send|recv)(-done)?)\(")
_HLO_PATTERNS = (
    # HLO writes a dynamic size with its upper bound: f32[<=8,2].
    ("a dynamic size", re.compile(r"\[[^\]]*<=")),
    ("a transfer to or from the host", _TRANSFER),
    ("64-bit floats", re.compile(r"\bf64\[")),
    # TPUs support the custom call TopK.
    ("a custom call", re.compile(r'custom_call_target="(?!TopK")')),
)


def offenders(function, *args) -> list[str]:
    """Lists operations in a function's graph and HLO that a TPU cannot run.

    Args:
        function: a `tf.function` with `jit_compile=True`.
        *args: its arguments. All sizes must be known.

    Returns:
        Messages such as `"64-bit floats: step/Cast"`, without repeats.
    """
    found = graph_offenders(function.get_concrete_function(*args).graph)
    hlo = function.experimental_get_compiler_ir(*args)(stage="hlo")
    for line in hlo.splitlines():
        for what, pattern in _HLO_PATTERNS:
            if pattern.search(line):
                name = re.search(r'op_name="([^"]*)"', line)
                found.append(f"{what}: {name[1] if name else line.strip()}")
    return list(dict.fromkeys(found))


def graph_offenders(graph) -> list[str]:
    """Lists operations in an uncompiled graph that a TPU cannot run."""
    found = []
    for operation in attention_cases.all_operations(graph):
        if _ON_HOST.search(operation.type):
            found.append(f"runs on the host: {operation.name}")
        for tensor in (*operation.inputs, *operation.outputs):
            if tensor.dtype == tf.string:
                found.append(f"a string: {tensor.name}")
    return found
