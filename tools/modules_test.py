import unittest
from unittest import mock

from testing.small_project import clear_caches
from testing.small_project import make_project
from tools import modules

# A small project, whose modules and tests import in different ways.
FILES = {
    "etcmodel/__init__.py": "",
    "etcmodel/reshape.py": "import numpy as np",
    "etcmodel/reshape_test.py": "from etcmodel.reshape import np",
    "etcmodel/layers/__init__.py": """
from etcmodel.layers.norm import Norm
from etcmodel.layers.dense import Dense
""",
    "etcmodel/layers/dense.py": """
import tensorflow as tf
from etcmodel import reshape
class Dense(tf.keras.layers.Layer): pass
""",
    "etcmodel/layers/dense_test.py": "from etcmodel.layers import dense",
    "etcmodel/layers/norm.py": "class Norm: pass",
    "etcmodel/layers/norm_test.py": "from etcmodel.layers import Norm",
    "etcmodel/models/__init__.py": "",
    "etcmodel/models/model.py": "from etcmodel.layers import Dense",
    "etcmodel/models/model_test.py": "import etcmodel.models.model",
    "etcmodel/models/table_test.py": """
from etcmodel import layers as all_layers
TABLE = [all_layers.Norm]
""",
    "etcmodel/tasks/__init__.py": "",
    "etcmodel/tasks/records.py": "",
    "etcmodel/tasks/records_test.py": "from etcmodel.tasks import records",
    "etcmodel/tasks/registry.py": "TASK = 'etcmodel.tasks.records:read'",
    "etcmodel/tasks/registry_test.py": "from etcmodel.tasks import registry",
    "etcmodel/engine.py": "from official.core import base_task",
    "etcmodel/engine_test.py": "from etcmodel import engine",
    "benchmarks/speed.py": "from etcmodel.models.model import Dense",
    "benchmarks/speed_test.py": "from benchmarks import speed",
}


class ModulesTest(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.object(modules, "ROOT", make_project(self, FILES))
        patch.start()
        self.addCleanup(clear_caches, modules)
        self.addCleanup(patch.stop)
        clear_caches(modules)

    def test_name_of_a_package_belongs_to_the_defining_module(self):
        self.assertEqual(
            {"etcmodel/layers/dense"},
            modules.imports_of("etcmodel/models/model"),
        )
        self.assertEqual(
            {"etcmodel/layers/dense", "etcmodel/layers/norm"},
            modules.imports_of("etcmodel/layers/__init__"),
        )
        self.assertEqual(
            {"etcmodel/layers/__init__", "etcmodel/layers/norm"},
            modules.imports_of("etcmodel/models/table_test"),
        )

    def test_strings_that_name_a_module_count(self):
        self.assertEqual(
            {"etcmodel/tasks/records"},
            modules.imports_of("etcmodel/tasks/registry"),
        )

    def test_closure(self):
        self.assertEqual(
            {
                "benchmarks/speed",
                "etcmodel/models/model",
                "etcmodel/layers/dense",
                "etcmodel/reshape",
            },
            modules.closure("benchmarks/speed"),
        )

    def test_places(self):
        for test, place in {
            "etcmodel/reshape_test": (3, False),
            "etcmodel/layers/dense_test": (3, True),
            # The tested module is in a package with layers, but does not use
            # Keras.
            "etcmodel/layers/norm_test": (3, False),
            "etcmodel/models/model_test": (3, True),
            "benchmarks/speed_test": (3, True),
            "etcmodel/tasks/records_test": (2, False),
            "etcmodel/engine_test": (2, False),
        }.items():
            self.assertEqual(place, modules.place_of(test), test)

    def test_tests_of_a_change(self):
        self.assertEqual(
            ["etcmodel/layers/dense_test", "etcmodel/reshape_test"],
            modules.tests_of(["etcmodel/reshape"]),
        )
        self.assertEqual(
            ["etcmodel/layers/norm_test", "etcmodel/models/table_test"],
            modules.tests_of(["etcmodel/layers/norm"]),
        )
        self.assertEqual(
            ["benchmarks/speed_test"],
            modules.tests_of(["benchmarks/speed_test"]),
        )
        self.assertEqual(
            ["etcmodel/tasks/records_test", "etcmodel/tasks/registry_test"],
            modules.tests_of(["etcmodel/tasks/records"]),
        )

    def test_tests_of_a_deleted_module(self):
        for path in ("models/model.py", "models/model_test.py"):
            (modules.ROOT / "etcmodel" / path).unlink()
        self.assertEqual(
            ["benchmarks/speed_test"],
            modules.tests_of(["etcmodel/models/model"]),
        )

    def test_tests_of_all_dependents_of_a_change(self):
        self.assertEqual(
            [
                "benchmarks/speed_test",
                "etcmodel/layers/dense_test",
                "etcmodel/models/model_test",
                "etcmodel/models/table_test",
                "etcmodel/reshape_test",
            ],
            modules.tests_of(["etcmodel/reshape"], all_dependents=True),
        )


if __name__ == "__main__":
    unittest.main()
