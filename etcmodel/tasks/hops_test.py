"""Tests that `docs/architecture.md` lists the functions on a record's path."""

import collections
import contextlib
import importlib
import inspect
import operator
import pathlib
import re
import sys
import tempfile
import threading
from unittest import mock

import tensorflow as tf

import etcmodel
from etcmodel.engine import preprocess
from etcmodel.serving import signatures
from etcmodel.tasks.hotpotqa.task import TASK
from etcmodel.training import trainer
from testing import models
from testing import tasks

_PACKAGE = pathlib.Path(etcmodel.__file__).parent
_PAGE = _PACKAGE.parent / "docs" / "architecture.md"
# Packages with the public functions that pass records on.
_ROOMS = ("cli", "datasets", "pipeline", "serving", "tasks", "training")


def read_hops(title: str) -> dict:
    """Returns code object -> name of the functions under a title, in order."""
    _, _, rest = _PAGE.read_text("utf-8").partition(f"**{title}**\n\n")
    section, _, _ = rest.partition("\n\n")
    hops = {}
    for path, name in re.findall(r"`(\S+)\.py`: `(\S+)`", section):
        module = f"etcmodel.{path.replace('/', '.')}"
        found = operator.attrgetter(name)(importlib.import_module(module))
        hops[inspect.unwrap(found).__code__] = name
    return hops


def _is_public(code) -> bool:
    """Returns whether a code object is a public function of `_ROOMS`."""
    path = pathlib.Path(code.co_filename)
    return (
        path.is_relative_to(_PACKAGE)
        and path.relative_to(_PACKAGE).parts[0] in _ROOMS
        and code.co_filename != __file__
        and code.co_name[0] not in "_<"
        and not code.co_flags & inspect.CO_NESTED
    )


@contextlib.contextmanager
def followed(hops: dict, root=None):
    """Records calls of the functions in `hops`, in all threads.

    Yields their names in the order of first calls, and unlisted public
    functions between them and `root`, the code of the first function.
    """
    order, between = collections.OrderedDict(), set()

    def profile(frame, event, _):
        if event != "call" or frame.f_code not in hops:
            return
        order.setdefault(hops[frame.f_code])
        caller = frame.f_back
        while caller is not None and caller.f_code is not root:
            code = caller.f_code
            if _is_public(code) and code not in hops:
                between.add(f"{code.co_filename}: {code.co_name}")
            caller = caller.f_back

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield order, between
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class HopsTest(tf.test.TestCase):
    def _check(self, title, most, function, root=None):
        hops = read_hops(title)
        self.assertLessEqual(len(hops), most)
        with followed(hops, root) as (order, between):
            function()
        self.assertEqual([*hops.values()], [*order])
        self.assertEqual(set(), between)

    def test_paths(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path, vocab_file = tasks.write_small_hotpotqa(folder, 4)
        records = f"{folder}/records"
        sizes = {"long_length": 32, "global_length": 16}
        run = preprocess.preprocess

        def check(*arguments):
            made = []
            with tasks.without_tracing():
                self._check(
                    "From file to shard",
                    15,
                    lambda: made.append(run(*arguments)),
                    run.__code__,
                )
            return made[0]

        with mock.patch.object(preprocess, "preprocess", check):
            code, _, err = tasks.run_cli(
                "preprocess",
                "--task=hotpotqa",
                f"--input={path}",
                f"--vocab_file={vocab_file}",
                f"--output_dir={records}",
                "--split=dev",
                *(f"--{name}={size}" for name, size in sizes.items()),
            )
        self.assertEqual((0, ""), (code, err))

        params = trainer.configure(TASK, **TASK.recipe)
        models.shrink_experiment(params, records, 2)
        task = trainer.task_classes(TASK)[0](params.task)
        model = task.build_model()

        def train():
            data = task.build_inputs(params.task.train_data)
            optimizer = tf.keras.optimizers.SGD()
            task.train_step(next(iter(data)), model, optimizer)

        self._check("From batch to loss", 14, train)

        config = TASK.make_preprocessing_config(sizes)
        module, requests = signatures.make_serving_module(
            model, TASK.make_preprocessor(config, vocab_file), task.task_model
        )
        functions, _ = module._functions()
        request = requests["serving_default"].items()
        self._check(
            "From request to answer",
            10,
            lambda: functions["serving_default"](
                **{name: tf.constant(x) for name, x in request}
            ),
        )


if __name__ == "__main__":
    tf.test.main()
