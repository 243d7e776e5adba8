import ast
import os
import pathlib
import subprocess
import sys
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parent

# What the modules of a room may import from the project: rooms below it.
ALLOWED = {
    "attention": {"attention", "tensor_utils"},
    "layers": {"layers", "attention", "tensor_utils", "activations"},
    "feature_utils": {
        "feature_utils",
        "attention",
        "tensor_utils",
        "gathering",
    },
    "models": {
        "models",
        "layers",
        "attention",
        "feature_utils",
        "tensor_utils",
        "activations",
        "cross_replica",
        "gathering",
        "weight_paths",
    },
    "datasets": {"datasets", "errors"},
    "checkpoints": {
        "checkpoints",
        "models",
        "layers",
        "feature_utils",
        "weight_paths",
    },
}


def imported_names(path):
    """All dotted names that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


class ImportsTest(unittest.TestCase):
    def files(self, room):
        return [
            path
            for path in (PACKAGE / room).rglob("*.py")
            if not path.name.endswith("_test.py")
        ]

    def test_rooms_import_downwards_only(self):
        for room, allowed in ALLOWED.items():
            for path in self.files(room):
                rooms = {
                    name.split(".")[1]
                    for name in imported_names(path)
                    if name.startswith("etcmodel.")
                }
                self.assertLessEqual(rooms, allowed, path)

    def test_attention_knows_nothing_of_keras(self):
        for path in self.files("attention"):
            self.assertNotIn("tf.keras", path.read_text("utf-8"), path)

    def test_no_task_imports_another(self):
        tasks = [p.parent.name for p in PACKAGE.glob("tasks/*/task.py")]
        self.assertGreater(len(tasks), 3)
        for task in tasks:
            others = {f"etcmodel.tasks.{t}" for t in tasks if t != task}
            for path in self.files(f"tasks/{task}"):
                for name in imported_names(path):
                    self.assertFalse(
                        any(name.startswith(other) for other in others),
                        (path, name),
                    )

    def test_only_tf_keras_is_used(self):
        for path in PACKAGE.rglob("*.py"):
            for name in imported_names(path):
                self.assertNotIn(
                    name.split(".")[0], ("keras", "tf_keras"), path
                )

    def test_what_importing_loads(self):
        script = (
            "import sys, etcmodel\n"
            "import etcmodel.datasets.documents, etcmodel.datasets.hotpotqa\n"
            "import etcmodel.datasets.nq, etcmodel.datasets.wikihop\n"
            "assert 'tensorflow' not in sys.modules\n"
            "import etcmodel.layers, etcmodel.feature_utils, etcmodel.models\n"
            "import etcmodel.checkpoints\n"
            "bad = {'tensorflow_text', 'official', 'safetensors'}\n"
            "bad &= set(sys.modules)\n"
            "assert not bad, bad\n"
            "import os\n"
            "print('legacy', os.environ.get('TF_USE_LEGACY_KERAS'))\n"
        )
        environment = dict(os.environ)
        environment.pop("TF_USE_LEGACY_KERAS", None)
        result = subprocess.run(
            [sys.executable, "-c", script],
            cwd=PACKAGE.parent,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        # The library leaves the choice of the Keras to others.
        self.assertIn("legacy None", result.stdout)


if __name__ == "__main__":
    unittest.main()
