"""Stand-ins for the commands that benchmarks run."""

import contextlib
import json
import os
from unittest import mock

from benchmarks import training_runs
from etcmodel.models import EtcConfig
from testing import tasks


@contextlib.contextmanager
def fake_commands(**outputs):
    """Commands do nothing but write what is read; yields name and flags."""
    seen = []

    def run_command(name, *options, **given):
        pairs = (x.removeprefix("--").split("=", 1) for x in options)
        given = dict(pairs) | {k: x for k, x in given.items() if x is not None}
        seen.append((name, given))
        if "config_file" in given:
            given["config"] = tasks.read_json(given["config_file"])
        if name == "lift":
            os.mkdir(given["output_dir"])
            config = EtcConfig.from_preset("tiny", hidden_size=24)
            path = os.path.join(given["output_dir"], "etc_config.json")
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(config.to_json_string())
        if name in outputs:
            with open(given["output"], "w", encoding="utf-8") as stream:
                outputs[name](stream)

    with mock.patch.object(training_runs, "run_command", run_command):
        yield seen


def write_metrics(**metrics):
    """Returns what writes metrics, as `evaluate`."""
    return lambda stream: json.dump(metrics, stream)
