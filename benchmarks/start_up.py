r"""Measures what comes before the first step and the first answer.

    python -m benchmarks.start_up
    python -m benchmarks.start_up --kerases=3 --presets=base --layers=12 \
        --length=4096 --global_length=230 --shapes=known --output=FOLDER

Builds an encoder with a head, calls `compile("adam")` and `fit`, exports the
model, loads it and asks it for the first time. Beside it the same is done with
a transformer of Keras's own layers, and with keras-hub's BERT where that is
installed (`pip install keras-hub`, Keras 3). Each case has processes of its
own. Columns are seconds, but for the operations of the graph:

*   `build`, then `first_fit`: one step, with all that comes before it.
    `built_optimizer`: the same after `model.optimizer.build(...)`. `step`: a
    later step.
*   `forward`, `backward`: tracing of the model, and what its gradients add;
    what layers share is traced only for the first of them. `loops`: the part
    of both that `tf.while_loop` takes. `first_run`: the first run of this
    graph, with TensorFlow's optimizations of graphs, XLA's compilation of
    small functions, and memory that the process asks for the first time.
    `without_xla`: the same without compiled functions. `run`: a later run.
*   `export`, `load`, `first_request`, and `request`, a later one.
*   `forward_operations`, `operations`: of the model and with its gradients, in
    all functions that the graph calls, before TensorFlow optimizes it.
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import io
import tempfile
import time
from collections.abc import Iterator
from unittest import mock

import numpy as np
import tensorflow as tf
from absl import app
from absl import flags

from benchmarks import measure
from benchmarks import program
from etcmodel.models import EtcConfig
from etcmodel.models import build_encoder
from etcmodel.ops import compilation
from etcmodel.ops.attention import dispatch

MODELS = ("etcmodel", "keras", "keras_hub")
_VOCAB_SIZE = 1000
_BATCH_SIZE = 2
_SHAPES = ("unknown", "known")
FLAGS = {
    "kerases": (["3", "2"], "Versions of Keras.", ("3", "2")),
    "presets": (["tiny"], "Sizes, see `EtcConfig`."),
    "layers": (["2", "6"], "Numbers of layers."),
    "models": (["etcmodel", "keras"], "What is measured.", MODELS),
    "implementations": (["auto"], "Of attention.", dispatch.IMPLEMENTATIONS),
    "shapes": (["unknown"], "What models know of lengths.", _SHAPES),
    "compiled": (
        ["false"],
        "Whether XLA compiles the whole step.",
        ("false", "true"),
    ),
    "length": (32, "Long tokens of an example."),
    "global_length": (8, "Global tokens of an example."),
}
# The later ones turn faster.
_CASE_FLAGS = [name for name, x in FLAGS.items() if isinstance(x[0], list)]
_COLUMNS = program.read_columns(
    "model keras preset layers:d implementation shapes compiled build:.1f "
    "first_fit:.1f built_optimizer:.1f step:.3f forward:.1f backward:.1f "
    "loops:.1f first_run:.1f without_xla:.1f run:.2f export:.1f load:.1f "
    "first_request:.1f request:.3f forward_operations:d operations:d"
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and how it is used; see the flags.

    Other models than ours take the preset's sizes. `compiled` is `jit_compile`.
    """

    model: str
    keras: int
    preset: str
    layers: int
    length: int
    global_length: int
    implementation: str = "auto"
    shapes: str = "unknown"
    compiled: bool = False

    def config(self) -> EtcConfig:
        """Returns the sizes."""
        return EtcConfig.from_preset(
            self.preset,
            vocab_size=_VOCAB_SIZE,
            num_hidden_layers=self.layers,
        )


def make_model(case: Case) -> tf.keras.Model:
    """Builds a model with a score for each global token, or each token."""
    make_encoder = {
        "etcmodel": _make_etc,
        "keras": _make_keras,
        "keras_hub": _make_keras_hub,
    }[case.model]
    inputs, encoded = make_encoder(case)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(encoded))


def _known(case, length):
    return length if case.shapes == "known" else None


def _make_etc(case):
    encoder = build_encoder(
        case.config(),
        long_length=_known(case, case.length),
        global_length=_known(case, case.global_length),
        outputs=["global_output"],
    )
    return encoder.input, encoder.output["global_output"]


def _make_keras(case):
    config = case.config()
    layers = tf.keras.layers
    ids = layers.Input(
        [_known(case, case.length)], dtype="int32", name="token_ids"
    )
    # [batch, length, hidden_size]
    x = layers.Embedding(config.vocab_size, config.hidden_size)(ids)
    for _ in range(config.num_hidden_layers):
        attended = layers.MultiHeadAttention(
            config.num_attention_heads,
            config.hidden_size // config.num_attention_heads,
            dropout=config.attention_probs_dropout_prob,
        )(x, x)
        attended = layers.Dropout(config.hidden_dropout_prob)(attended)
        x = layers.LayerNormalization()(layers.Add()([x, attended]))
        inner = layers.Dense(config.intermediate_size, activation="gelu")(x)
        inner = layers.Dense(config.hidden_size)(inner)
        inner = layers.Dropout(config.hidden_dropout_prob)(inner)
        x = layers.LayerNormalization()(layers.Add()([x, inner]))
    return {"token_ids": ids}, x


def _make_keras_hub(case):
    # Not among the requirements.
    keras_hub = importlib.import_module("keras_hub")
    config = case.config()
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        max_sequence_length=max(512, case.length),
    )
    return backbone.input, backbone.output["sequence_output"]


def make_batch(case: Case) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Makes a batch for a case: inputs and targets."""
    rng = np.random.default_rng(1)
    tokens = (_BATCH_SIZE, case.length)
    sentences = (_BATCH_SIZE, case.global_length)
    ids = rng.integers(1, _VOCAB_SIZE, tokens).astype(np.int32)
    targets = rng.random((*tokens, 1), np.float32)
    if case.model == "keras":
        return {"token_ids": ids}, targets
    if case.model == "keras_hub":
        inputs = {
            "token_ids": ids,
            "segment_ids": np.zeros_like(ids),
            "padding_mask": np.ones_like(ids),
        }
        return inputs, targets
    breakpoints = np.zeros(tokens, np.int32)
    global_breakpoints = np.zeros(sentences, np.int32)
    breakpoints[:, -1] = global_breakpoints[:, -1] = 1
    # [long]
    owners = np.arange(case.length) * case.global_length // case.length
    inputs = {
        "long_token_ids": ids,
        "sentence_ids": np.broadcast_to(owners, tokens).astype(np.int32),
        "long_breakpoints": breakpoints,
        "global_token_ids": np.ones(sentences, np.int32),
        "global_breakpoints": global_breakpoints,
    }
    return inputs, rng.random((*sentences, 1), np.float32)


def make_dataset(case: Case) -> tf.data.Dataset:
    """Makes a dataset of one batch, not autotuned.

    At the end of `fit`, deleting an iterator that is autotuned can wait for its
    tuning thread, as long again as `fit` took.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = tf.data.Dataset.from_tensor_slices(make_batch(case))
    return dataset.batch(_BATCH_SIZE).with_options(options)


def count_operations(graph: tf.Graph) -> int:
    """Counts a graph's operations, with those of the functions it calls.

    A function counts once, however often it is called, and not at all if
    nothing calls it.
    """
    definition = graph.as_graph_def()
    functions = {
        function.signature.name: function.node_def
        for function in definition.library.function
    }
    seen, waiting, count = set(), [definition.node], 0
    while waiting:
        nodes = waiting.pop()
        count += len(nodes)
        for node in nodes:
            called = {node.op}
            for value in node.attr.values():
                called.update(x.name for x in (value.func, *value.list.func))
            for name in (called & functions.keys()) - seen:
                seen.add(name)
                waiting.append(functions[name])
    return count


@contextlib.contextmanager
def _timed(seconds, name):
    """Adds how long something takes."""
    start = time.perf_counter()
    yield
    seconds[name] = seconds.get(name, 0) + time.perf_counter() - start


@contextlib.contextmanager
def _implementation(case):
    """Chooses the implementation of attention, whatever the lengths."""
    if case.implementation == "auto":
        yield
        return
    with mock.patch.object(
        dispatch, "choose_implementation", lambda *_: case.implementation
    ):
        yield


def fit_and_export(case: Case, directory: str) -> dict[str, float]:
    """Measures the way from nothing to a SavedModel, in seconds by column."""
    seconds = {}
    with _implementation(case):
        with _timed(seconds, "build"):
            model = make_model(case)
        model.compile("adam", "mse", jit_compile=case.compiled)
        fit = functools.partial(
            model.fit, make_dataset(case), shuffle=False, verbose=0
        )
        with _timed(seconds, "first_fit"):
            fit()
        # Untimed, so that nothing is left to be prepared.
        fit()
        with _timed(seconds, "step"):
            fit()
        with (
            _timed(seconds, "export"),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            model.export(directory)
    return seconds


def fit_with_built_optimizer(case: Case) -> dict[str, float]:
    """Measures the first step after the optimizer was built."""
    seconds = {}
    with _implementation(case):
        model = make_model(case)
        model.compile("adam", "mse", jit_compile=case.compiled)
        with _timed(seconds, "built_optimizer"):
            model.optimizer.build(model.trainable_variables)
            model.fit(make_dataset(case), shuffle=False, verbose=0)
    return seconds


def load_and_ask(case: Case, directory: str) -> dict[str, float]:
    """Measures loading of a SavedModel and the first requests."""
    seconds = {}
    inputs = {k: tf.constant(v) for k, v in make_batch(case)[0].items()}
    with _timed(seconds, "load"):
        model = tf.saved_model.load(directory)
    serve = model.signatures["serving_default"]
    with _timed(seconds, "first_request"):
        serve(**inputs)
    with _timed(seconds, "request"):
        serve(**inputs)
    return seconds


def _trace_gradients(case, seconds):
    """Traces a model and its gradients; returns it and both functions."""
    inputs, targets = make_batch(case)
    signature = tf.nest.map_structure(
        # [batch, length, ...]
        lambda x: tf.TensorSpec(
            [None, _known(case, x.shape[1]), *x.shape[2:]], x.dtype
        ),
        (inputs, targets),
    )
    while_loop = tf.while_loop

    def timed_loop(*args, **kwargs):
        with _timed(seconds, "loops"):
            return while_loop(*args, **kwargs)

    with _implementation(case):
        model = make_model(case)

        def loss(inputs, targets):
            difference = model(inputs, training=True) - targets
            return tf.reduce_mean(tf.square(difference))

        def gradients(inputs, targets):
            with tf.GradientTape() as tape:
                value = loss(inputs, targets)
            return tape.gradient(value, model.trainable_variables)

        def traced(function):
            function = tf.function(function, jit_compile=case.compiled)
            return function.get_concrete_function(*signature)

        with _timed(seconds, "forward"):
            forward = traced(loss)
        seconds["loops"] = 0.0
        with (
            mock.patch.object(tf, "while_loop", timed_loop),
            _timed(seconds, "backward"),
        ):
            both = traced(gradients)
        seconds["backward"] -= seconds["forward"]
    return model, forward, both


def trace(case: Case) -> dict[str, float]:
    """Measures where the time of the first step goes."""
    seconds = {}
    # Without the model there would be no weights.
    _model, forward, both = _trace_gradients(case, seconds)
    arguments = tf.nest.map_structure(tf.constant, make_batch(case))
    for name in ("first_run", "run"):
        with _timed(seconds, name):
            both(*arguments)
    return {
        **seconds,
        "forward_operations": count_operations(forward.graph),
        "operations": count_operations(both.graph),
    }


def run_without_xla(case: Case) -> dict[str, float]:
    """Measures the first run of a graph without compiled functions."""
    seconds = {}
    with compilation.elementwise_jit(False):
        _model, _, both = _trace_gradients(case, {})
    arguments = tf.nest.map_structure(tf.constant, make_batch(case))
    with _timed(seconds, "without_xla"):
        both(*arguments)
    return seconds


def measure_case(case: Case) -> program.Line:
    """Measures a case in fresh processes."""
    line = dataclasses.asdict(case)
    run = measure.in_fresh_process
    variables = {"TF_USE_LEGACY_KERAS": str(int(case.keras == 2))}
    with (
        measure.environment_variables(variables),
        tempfile.TemporaryDirectory() as directory,
    ):
        line |= run(fit_and_export, case, directory)
        line |= run(load_and_ask, case, directory)
        line |= run(fit_with_built_optimizer, case)
        line |= run(trace, case)
        line |= run(run_without_xla, case)
        line |= run(measure.environment)
    return line


def make_cases(values: flags.FlagValues) -> list[Case]:
    """Makes the cases that the flags ask for.

    Implementations are ETC's alone, and keras-hub needs Keras 3.
    """
    if "keras_hub" in values.models and not importlib.util.find_spec(
        "keras_hub"
    ):
        raise app.UsageError(
            "--models: keras-hub is not installed. Run: pip install keras-hub"
        )
    cases = {}
    for chosen in program.combinations(values, *_CASE_FLAGS):
        model, keras = chosen["models"], int(chosen["kerases"])
        if model == "keras_hub" and keras == 2:
            continue
        case = Case(
            model,
            keras,
            chosen["presets"],
            int(chosen["layers"]),
            values.length,
            values.global_length,
            chosen["implementations"] if model == "etcmodel" else "auto",
            chosen["shapes"],
            chosen["compiled"] == "true",
        )
        cases[case] = None
    return list(cases)


def _measure(values) -> Iterator[program.Line]:
    for case in make_cases(values):
        yield measure_case(case)


PROGRAM = program.Program("start_up", FLAGS, _COLUMNS, _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
