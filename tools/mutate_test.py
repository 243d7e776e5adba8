import contextlib
import io
import unittest
from unittest import mock

from tools import modules
from tools import modules_test
from tools import mutate

FILES = {
    "conftest.py": 'pytest_plugins = ["tools.suite_plugin"]\n',
    "etcmodel/__init__.py": "",
    "etcmodel/sums.py": "def add(a, b):\n    return a + b  # The sum.\n",
    "etcmodel/sums_test.py": """
from etcmodel import sums
def test_sum():
    assert sums.add(2, 2) == 4
""",
    "etcmodel/user.py": "from etcmodel.sums import add\n",
    "etcmodel/user_test.py": """
from etcmodel import user
def test_difference():
    assert user.add(3, -2) == 1
""",
}


class MutateTest(unittest.TestCase):
    def setUp(self):
        names = ("modules", "run_tests", "suite_plugin")
        tools = {
            f"tools/{name}.py": (modules.ROOT / f"tools/{name}.py").read_text()
            for name in names
        }
        root = modules_test.make_project(self, FILES | tools)
        self.folder = root / "tools" / "mutations"
        self.folder.mkdir()
        for module, name, value in (
            (modules, "ROOT", root),
            (mutate, "FOLDER", self.folder),
        ):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        # What is known of the modules is of another project.
        modules_test.ModulesTest.forget(self)
        self.addCleanup(modules_test.ModulesTest.forget, self)

    def write(self, *replacements):
        (self.folder / "sums.yaml").write_text(
            "\n".join(
                f"- module: etcmodel/sums.py\n  why: {old} becomes {new}\n"
                f"  old: {old}\n  new: {new}"
                for old, new in replacements
            )
        )

    def run_tool(self, *arguments):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = mutate.main(arguments)
        return code, printed.getvalue()

    def test_what_tests_notice_and_what_not(self):
        self.write(("a + b", "a * b"), ("a + b", "abs(a + b)"))
        code, printed = self.run_tool("etcmodel/sums.py")
        self.assertEqual(1, code)
        first, second, last = printed.splitlines()
        # The product of 2 and 2 is their sum; the module's user notices.
        self.assertRegex(first, "^caught .*user_test.py::test_difference")
        self.assertRegex(second, "^UNNOTICED .*: a . b becomes abs")
        self.assertEqual("2 mutations, 1 unnoticed", last)
        self.assertEqual(
            FILES["etcmodel/sums.py"],
            (modules.ROOT / "etcmodel/sums.py").read_text(),
        )
        self.assertEqual(1, self.run_tool("etcmodel/none.py")[0])
        self.assertIn("a + b becomes", self.run_tool("--list")[1])

    def test_what_fails_anyway_notices_nothing(self):
        test = modules.ROOT / "etcmodel/sums_test.py"
        test.write_text(f"{test.read_text()}    assert sums.add(2, 3) == 6\n")
        self.write(("a + b", "abs(a + b)"))
        code, printed = self.run_tool()
        self.assertEqual(1, code)
        self.assertRegex(printed, "UNNOTICED: .*::test_sum fails without")
        self.assertIn("1 mutations, 1 unnoticed", printed)
        test.write_text("import no_such_module\n")
        code, printed = self.run_tool()
        self.assertRegex(printed, "UNNOTICED: etcmodel/sums_test.py fails")

    def test_a_mutation_must_fit_its_module(self):
        for old, count in (("a - b", 0), ("a", 3)):
            self.write((old, "x"))
            with self.assertRaisesRegex(
                ValueError, rf"sums.yaml: .* etcmodel/sums.py .*{count} times"
            ):
                mutate.read_mutations()
        self.write(("a + b", "'a +'"))
        with self.assertRaisesRegex(SyntaxError, "sums.yaml"):
            mutate.read_mutations()


class ListTest(unittest.TestCase):
    def test_all_mutations_fit_the_code(self):
        self.assertGreater(len(mutate.read_mutations()), 200)


if __name__ == "__main__":
    unittest.main()
