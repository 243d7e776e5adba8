import pathlib

import tensorflow as tf
from absl.testing import parameterized
from official.core import exp_factory

from etcmodel.engine import overrides
from etcmodel.tasks import registry

_FOLDER = pathlib.Path(__file__).parent / "ablations"


class AblationsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*sorted(x.name for x in _FOLDER.iterdir()))
    def test_changes_its_experiment(self, name):
        task = name.split("_")[0]
        registry.register_experiments(task)
        path = str(_FOLDER / name)
        params = exp_factory.get_exp_config(f"etc/{task}")
        values = overrides.read_file(path, path)
        overrides.check(values, params, path)
        before = params.as_dict()
        params.override(values)
        self.assertNotEqual(before, params.as_dict())


if __name__ == "__main__":
    tf.test.main()
