"""Serves small models to a browser, for tests of the server's page."""

import contextlib
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from selenium import webdriver
from selenium.webdriver.chrome import service as chrome_service

from etcmodel import models
from etcmodel.engine import serve
from etcmodel.feature_utils.text import tokenizers
from etcmodel.ops.attention import for_inference
from etcmodel.pipeline.spec import load
from etcmodel.serving import rest
from etcmodel.serving import server
from etcmodel.serving import signatures
from etcmodel.tasks import registry
from testing import helpers
from testing import served_models
from testing import small_read_twice
from testing import tasks
from testing.models import set_random_weights

_CHROMIUM, _DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,:;?!()'-#<>/=&"
_WORDS = "jan novak is a cook he lives in krakow city poland who where the"
_LENGTHS = {"long_length": 256, "global_length": 64}
_SEGMENTS = {"block_length": 24, "block_overlap": 4, "max_question_length": 8}
# Task -> preprocessing options besides its lengths.
_SIZES = {
    "classify": {"kind": "single", "labels": ("people", "places", "sports")},
    "nq": {"stride": 64, "include_html_tokens": False},
}


class OneModel:
    """Replaces `versions.Versions`; serves a given model as version 1."""

    def __init__(self, model: Any):
        self._model = model
        self.available = [1]
        self.states, self.errors = {1: "AVAILABLE"}, {}

    def get(self, version: int | None = None) -> Any:
        return self._model if version in (None, 1) else None

    def version_of(self, model: Any) -> int:
        del model
        return 1

    async def close(self) -> None:
        await self._model.close()


class StubModel:
    """Replaces `versions.LoadedModel`; answers with a function's result.

    `answer` maps the inputs of a record to its prediction.
    """

    def __init__(self, task: str, answer: Callable[[Mapping], Mapping]):
        preprocessor = load(registry.get(task).preprocessor)
        self.metadata = {"task": task}
        spec = tf.TensorSpec([None], tf.string)
        self.specs = {"text": dict.fromkeys(preprocessor.TEXT_REQUEST, spec)}
        self.outputs = {"text": {}}
        self._answer = answer

    async def predict(self, body: bytes, check: Callable) -> bytes:
        request = rest.parse(body, self.specs)
        check(request)
        (record,) = json.loads(body)["instances"]
        return json.dumps({"predictions": [self._answer(record)]}).encode()

    async def close(self) -> None:
        pass


@functools.cache
def _module(task: str) -> signatures.ServingModule:
    """Makes the signatures of a task's small model with random weights."""
    spec = registry.get(task)
    sizes = dict(_SIZES.get(task, {}))
    sizes |= _SEGMENTS if spec.reads_segments else _LENGTHS
    directory = tempfile.mkdtemp()
    try:
        names = [*tokenizers.WORDPIECE_RESERVED_TOKENS, *_WORDS.split()]
        names += [*_CHARACTERS, *(f"##{x}" for x in _CHARACTERS)]
        vocab_file = helpers.write_vocab(directory, list(dict.fromkeys(names)))
        preprocessor = spec.make_preprocessor(
            spec.make_preprocessing_config(sizes), vocab_file
        )
    finally:
        shutil.rmtree(directory)
    task_model = spec.make_model(spec.model_options(), spec.options(), sizes)
    size = preprocessor.tokenizer.vocab_size
    if spec.reads_segments:
        config = small_read_twice.make_config(
            vocab_size=size, max_seq_length=sizes["block_length"]
        )
    else:
        config = models.EtcConfig.from_preset(
            "tiny", vocab_size=size, num_hidden_layers=1
        )
    model = task_model.build(config)
    set_random_weights(model, 0.2)
    return signatures.make_module(model, preprocessor, task_model)


def tiny_model(task: str) -> StubModel:
    """Makes a model with random weights that has only the signature `text`.

    It runs the code of the signature eagerly: tracing takes longer than a few
    answers.
    """
    module = _module(task)

    @functools.cache
    def answer_text(text):
        inputs = {x: tf.constant([y]) for x, y in json.loads(text).items()}
        with tasks.without_tracing(), for_inference():
            outputs = module._functions()[0]["text"](**inputs)
        arrays = {name: np.asarray(x) for name, x in outputs.items()}
        body = rest.render(arrays, by_row=True)
        return json.loads(body)["predictions"][0]

    # Cached, because the page and the test ask the same.
    return StubModel(
        task, lambda record: answer_text(json.dumps(record, sort_keys=True))
    )


@contextlib.contextmanager
def serving(
    model: StubModel,
    example: Mapping[str, str] | None = None,
    name: str = "mine",
) -> Iterator[str]:
    """Serves a model with its page; yields the address of the page.

    By default, the page begins with the task's small example.
    """

    async def make_app():
        return server.make_app(
            name,
            OneModel(model),
            server.Settings(),
            serve.example_of if example is None else lambda task: example,
        )

    with served_models.running(make_app) as port:
        yield f"http://127.0.0.1:{port}/"


def open_browser(width: int = 1280, height: int = 900) -> webdriver.Chrome:
    """Starts Chromium without a window; the caller calls `quit`.

    If Chromium is not installed, skips the calling test; with `CI=true`, fails
    it.
    """
    if not (os.path.exists(_CHROMIUM) and os.path.exists(_DRIVER)):
        helpers.skip_or_fail(
            "Chromium is not installed: apt-get install chromium "
            "chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = _CHROMIUM
    for argument in (
        "--headless=new",
        # Needed as root and in small containers.
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={width},{height}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = chrome_service.Service(_DRIVER)
    return webdriver.Chrome(options=options, service=service)
