import ast
import os
import pathlib
import re
import subprocess
import sys
import unittest

from etcmodel import extras
from tools import modules

PACKAGE = pathlib.Path(__file__).resolve().parent

LEVEL = {room: i for i, rooms in enumerate(modules.LEVELS) for room in rooms}


def imported_names(path):
    """Returns all dotted names that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


# Makes imports of the packages of all extras fail.
BLOCK = f"""
import sys
sys.modules |= dict.fromkeys({sum(extras.EXTRAS.values(), ())!r})
"""
# Imports all modules; prints each module that imports, or whose error does not
# name the extra.
IMPORT_ALL = f"""{BLOCK}
import importlib
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        text = f"{{type(error).__name__}} {{error}}"
        is_right = "MissingExtraError" in text and "pip install 'etc" in text
        if not is_right or len(text.splitlines()) > 1:
            print(name, text)
    else:
        print("imported", name)
"""


def run_python(script, *args):
    """Runs a script in a separate process, with the default Keras version."""
    environment = dict(os.environ)
    environment.pop("TF_USE_LEGACY_KERAS", None)
    return subprocess.run(
        [sys.executable, "-c", script, *args],
        cwd=PACKAGE.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


# Public names of a package ("room") that `etcmodel` itself does not export.
ONLY_IN_ROOMS = {
    "layers": {
        "ProjectAttentionHeads",
        "QkvRelativeAttention",
        "QkvRelativeLocalAttention",
        "RecomputingDropout",
    },
    "models": set(),
    "checkpoints": {
        "Bert",
        "LiftReport",
        "beside",
        "config_file",
        "load_etc",
        "load_head",
        "load_read_twice",
        "save_etc",
        "save_read_twice",
    },
}
# Prints names of `etcmodel` that differ from those of the defining modules.
COMPARE_NAMES = """
import importlib
import sys
import etcmodel
for pair in sys.argv[1:]:
    module, name = pair.split(":")
    if module == ".":
        expected = importlib.import_module(f".{name}", "etcmodel")
    else:
        expected = getattr(importlib.import_module(module, "etcmodel"), name)
    if getattr(etcmodel, name) is not expected or name not in dir(etcmodel):
        print(pair)
"""


class PublicNamesTest(unittest.TestCase):
    def test_the_package_has_the_public_names_of_rooms(self):
        stub = ast.parse((PACKAGE / "__init__.pyi").read_text("utf-8"))
        pairs = []
        for node in ast.walk(stub):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.assertEqual(alias.name, alias.asname)
                    pairs.append((f".{node.module or ''}", alias.name))
        names = [name for _, name in pairs]
        self.assertEqual(len(names), len(set(names)))
        for room, others in ONLY_IN_ROOMS.items():
            tree = ast.parse((PACKAGE / room / "__init__.py").read_text())
            (public,) = (
                ast.literal_eval(node.value)
                for node in tree.body
                if isinstance(node, ast.Assign)
                and node.targets[0].id == "__all__"
            )
            self.assertEqual(
                set(public) - others,
                {name for module, name in pairs if module == f".{room}"},
            )
            self.assertLessEqual(others, set(public))
        self.assertLessEqual(
            {"DocumentClassifier", "Predictor", "UserError", "load"}, set(names)
        )
        result = run_python(COMPARE_NAMES, *map(":".join, pairs))
        self.assertEqual(("", 0), (result.stdout, result.returncode), result)


class ImportsTest(unittest.TestCase):
    def files(self, room):
        return [
            path
            for path in (PACKAGE / room).rglob("*.py")
            if not path.name.endswith("_test.py")
        ]

    def test_rooms_import_downwards_only(self):
        rooms = {x.parent.name for x in PACKAGE.glob("*/__init__.py")}
        self.assertEqual(rooms, LEVEL.keys())
        for room, level in LEVEL.items():
            for path in self.files(room):
                for name in imported_names(path):
                    if not name.startswith("etcmodel."):
                        continue
                    other = name.split(".")[1]
                    if other != room and other in LEVEL:
                        self.assertGreater(LEVEL[other], level, (path, name))

    def test_package_imports_no_developer_tools(self):
        for path in self.files("."):
            for name in imported_names(path):
                self.assertNotIn(
                    name.split(".")[0],
                    ("benchmarks", "examples", "testing", "tools"),
                    path,
                )

    def test_no_test_is_imported(self):
        tests = {x for x in modules.module_files() if x.stem.endswith("_test")}
        names = {".".join(x.with_suffix("").parts) for x in tests}
        self.assertGreater(len(names), 100)
        for path in modules.module_files():
            if path in tests or path.parts[0] == "testing":
                imported = imported_names(modules.ROOT / path)
                imported |= {x.rpartition(".")[0] for x in imported}
                self.assertEqual(set(), names & imported, path)

    def test_ops_do_not_import_keras(self):
        for path in self.files("ops"):
            self.assertNotIn("tf.keras", path.read_text("utf-8"), path)

    def test_private_tensorflow_is_used_in_one_module(self):
        users = [
            str(path.relative_to(PACKAGE))
            for path in self.files(".")
            if "tensorflow.python" in path.read_text("utf-8")
        ]
        self.assertEqual(["ops/tensorflow_internals.py"], users)

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

    def test_importing_loads_no_heavy_packages(self):
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
        result = run_python(script)
        self.assertEqual(result.returncode, 0, result.stderr)
        # Importing sets no environment variable.
        self.assertIn("legacy None", result.stdout)

    def test_missing_packages_name_the_extra(self):
        names = [
            ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            for path in self.files(".")
        ]
        self.assertGreater(len(names), 100)
        result = run_python(IMPORT_ALL, *names)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        wrong = [x for x in lines if not x.startswith("imported ")]
        self.assertEqual([], wrong)
        for name in ("layers.dropout", "models.etc.etc_model", "checkpoints"):
            self.assertIn(f"imported etcmodel.{name}", result.stdout)

    def test_packages_of_extras_are_required_before_they_are_imported(self):
        optional = set(sum(extras.EXTRAS.values(), ()))
        for path in self.files("."):
            used = {x.split(".")[0] for x in imported_names(path)} & optional
            required = set()
            folders = [x for x in path.parents if x.is_relative_to(PACKAGE)]
            for file in (path, *(x / "__init__.py" for x in folders)):
                text = file.read_text("utf-8")
                for call in re.findall(r"\brequire\(([^)]*)\)", text):
                    required |= set(re.findall(r'"(\w+)"', call))
                if 'require_extra("tasks")' in text:
                    required |= optional
            self.assertLessEqual(used, required, path)

    def test_program_without_its_extra(self):
        for arguments in ([], ["--help"], ["train"]):
            result = run_python(
                f"{BLOCK}\nfrom etcmodel.__main__ import run\n"
                f"sys.argv = ['etcmodel', *{arguments}]\nsys.exit(run())"
            )
            self.assertEqual(1, result.returncode)
            self.assertRegex(
                result.stderr, r"^Error: .*pip install 'etcmodel\[tasks\]'"
            )
            self.assertEqual(1, len(result.stderr.splitlines()))


if __name__ == "__main__":
    unittest.main()
