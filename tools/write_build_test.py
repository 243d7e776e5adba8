import ast
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("benchmarks", "etcmodel", "examples", "tools")


def read_rules():
    """The rules of the BUILD file: kind, name, srcs and deps."""
    # BUILD files are written in Starlark, whose syntax is Python's.
    rules = []
    for node in ast.parse((ROOT / "BUILD").read_text("utf-8")).body:
        call = getattr(node, "value", None)
        if not isinstance(call, ast.Call) or not call.func.id.startswith("py_"):
            continue
        arguments = {k.arg: k.value for k in call.keywords}
        deps = arguments.get("deps", ast.List(elts=[])).elts
        rules.append(
            dict(
                kind=call.func.id,
                name=ast.literal_eval(arguments["name"]),
                srcs=ast.literal_eval(arguments["srcs"]),
                deps={d.value for d in deps if isinstance(d, ast.Constant)},
                requirements={
                    d.args[0].value for d in deps if isinstance(d, ast.Call)
                },
            )
        )
    return rules


class BuildFileTest(unittest.TestCase):
    advice = "Run: python -m tools.write_build"

    def test_every_file_has_one_rule_of_its_kind(self):
        expected = {}
        for folder in FOLDERS:
            for path in (ROOT / folder).rglob("*.py"):
                is_test = path.name.endswith("_test.py")
                expected[path.relative_to(ROOT).as_posix()] = (
                    "py_test" if is_test else "py_library"
                )
        rules = read_rules()
        self.assertEqual(
            sorted(source for rule in rules for source in rule["srcs"]),
            sorted(expected),
            self.advice,
        )
        for rule in rules:
            self.assertEqual(len(rule["srcs"]), 1)
            self.assertEqual(rule["name"] + ".py", rule["srcs"][0])
            self.assertEqual(rule["kind"], expected[rule["srcs"][0]])

    def test_every_library_has_a_test_of_its_own(self):
        names = {rule["name"]: rule["kind"] for rule in read_rules()}
        for name, kind in names.items():
            if kind == "py_library" and not name.endswith("/__init__"):
                self.assertEqual(
                    names.get(f"{name}_test"),
                    "py_test",
                    f"{name}.py has no {name}_test.py. {self.advice}",
                )

    def test_dependencies_are_the_imports(self):
        rules = read_rules()
        names = {rule["name"] for rule in rules}
        for rule in rules:
            text = (ROOT / rule["srcs"][0]).read_text("utf-8")
            imported = set()
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    for alias in node.names:
                        full = f"{node.module}.{alias.name}".replace(".", "/")
                        imported.add(
                            full
                            if full in names
                            else full[: -len(alias.name) - 1]
                        )
                elif isinstance(node, ast.Import):
                    imported |= {a.name.replace(".", "/") for a in node.names}
            modules = {name for name in imported if name in names}
            self.assertLessEqual(modules, rule["deps"], self.advice)
            self.assertLessEqual(rule["deps"], names, self.advice)
            tops = {name.split("/")[0] for name in imported}
            if "orbit" in tops:
                tops.add("official")
            for name, distribution in (
                ("tensorflow", "tensorflow"),
                ("numpy", "numpy"),
                ("tensorflow_text", "tensorflow-text"),
                ("official", "tf-models-official"),
            ):
                self.assertEqual(
                    name in tops,
                    distribution in rule["requirements"],
                    (rule["name"], name, self.advice),
                )

    def test_requirements_are_the_projects(self):
        lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
        known = {
            line.split(">")[0] for line in lines if line and line[0] != "#"
        }
        # Comes with TensorFlow, in the version that TensorFlow asks for.
        known.add("protobuf")
        for rule in read_rules():
            self.assertLessEqual(rule["requirements"], known, rule["name"])


if __name__ == "__main__":
    unittest.main()
