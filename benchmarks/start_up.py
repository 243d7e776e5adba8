r"""Measures the time until the first training step and the first answer.

    python -m benchmarks.start_up
    python -m benchmarks.start_up --kerases=3 --presets=base --layers=12 \
        --length=4096 --global_length=230 --shapes=known --output=FOLDER

Builds an encoder with a head, calls `compile("adam")` and `fit`, exports the
model, loads it and sends a request. Does the same with a transformer of Keras's
own layers, and with keras-hub's BERT if it is installed
(`pip install keras-hub`, Keras 3). Each case runs in new processes. Columns are
seconds:

*   `build`: building the model. `first_fit`: the first call of `fit`, with one
    step. `built_optimizer`: the first call of `fit` after
    `model.optimizer.build(...)`. `step`: a later step.
*   `export`, `load`, `first_request`, and `request`: a later request.
"""

import contextlib
import functools
import importlib
import importlib.util
import io
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import app

from benchmarks import capacity
from benchmarks import measure
from benchmarks import program
from etcmodel.models import EtcConfig
from etcmodel.models import build_encoder

_VOCAB_SIZE = 1000
_BATCH_SIZE = 2


class Case(NamedTuple):
    """A model and its settings; see the flags.

    Models other than "etcmodel" take only their sizes from the preset.
    `compiled` is Keras's `jit_compile`.
    """

    model: str
    keras: int
    preset: str
    layers: int
    length: int
    global_length: int
    shapes: str = "unknown"
    compiled: bool = False

    def config(self) -> EtcConfig:
        """Returns the configuration with the model's sizes."""
        return EtcConfig.from_preset(
            self.preset,
            vocab_size=_VOCAB_SIZE,
            num_hidden_layers=self.layers,
        )


def make_model(case: Case) -> tf.keras.Model:
    """Builds a model that scores each global token, or each token if none."""
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
    # keras-hub is optional.
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
    """Makes a batch for a case; returns inputs and targets."""
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
    inputs = capacity.make_features(
        _VOCAB_SIZE, case.length, case.global_length
    )
    inputs = {
        name: np.tile(x.astype(np.int32), [_BATCH_SIZE, 1])
        for name, x in inputs.items()
    }
    return inputs, rng.random((*sentences, 1), np.float32)


def make_dataset(case: Case) -> tf.data.Dataset:
    """Makes a dataset of one batch, without autotuning.

    With autotuning, deleting the iterator at the end of `fit` waits for the
    tuning thread, and can take as long as `fit` itself.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = tf.data.Dataset.from_tensor_slices(make_batch(case))
    return dataset.batch(_BATCH_SIZE).with_options(options)


@contextlib.contextmanager
def _timed(seconds, name):
    """Stores the seconds of a with block in `seconds[name]`."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def fit_and_export(case: Case, directory: str) -> dict[str, float]:
    """Measures build, steps and export; returns seconds by column."""
    seconds = {}
    with _timed(seconds, "build"):
        model = make_model(case)
    model.compile("adam", "mse", jit_compile=case.compiled)
    fit = functools.partial(
        model.fit, make_dataset(case), shuffle=False, verbose=0
    )
    with _timed(seconds, "first_fit"):
        fit()
    # The second call is not timed, because it still prepares some functions.
    fit()
    with _timed(seconds, "step"):
        fit()
    with _timed(seconds, "export"), contextlib.redirect_stdout(io.StringIO()):
        model.export(directory)
    return seconds


def fit_with_built_optimizer(case: Case) -> dict[str, float]:
    """Measures building the optimizer and the first step."""
    seconds = {}
    model = make_model(case)
    model.compile("adam", "mse", jit_compile=case.compiled)
    with _timed(seconds, "built_optimizer"):
        model.optimizer.build(model.trainable_variables)
        model.fit(make_dataset(case), shuffle=False, verbose=0)
    return seconds


def load_and_ask(case: Case, directory: str) -> dict[str, float]:
    """Measures loading a SavedModel and its first requests."""
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


def measure_case(case: Case) -> program.Line:
    """Measures a case in new processes."""
    line = case._asdict()
    run = measure.in_fresh_process
    variables = {"TF_USE_LEGACY_KERAS": str(int(case.keras == 2))}
    with (
        measure.environment_variables(variables),
        tempfile.TemporaryDirectory() as directory,
    ):
        line |= run(fit_and_export, case, directory)
        line |= run(load_and_ask, case, directory)
        line |= run(fit_with_built_optimizer, case)
        line |= run(measure.environment)
    return line


def _measure(values) -> Iterator[program.Line]:
    if "keras_hub" in values.models and not importlib.util.find_spec(
        "keras_hub"
    ):
        raise app.UsageError(
            "--models: keras-hub is not installed. Run: pip install keras-hub"
        )
    for chosen in program.combinations(PROGRAM, values):
        case = Case(
            chosen["models"],
            int(chosen["kerases"]),
            chosen["presets"],
            int(chosen["layers"]),
            values.length,
            values.global_length,
            chosen["shapes"],
            chosen["compiled"] == "true",
        )
        # keras-hub needs Keras 3.
        if (case.model, case.keras) != ("keras_hub", 2):
            yield measure_case(case)


PROGRAM = program.load("start_up", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
