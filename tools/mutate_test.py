import contextlib
import io
import unittest
from unittest import mock

import yaml

from testing import small_project
from tools import modules
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
    "etcmodel/user_test.py": """
from etcmodel.sums import add
def test_difference():
    assert add(3, -2) == 1
""",
}
TESTS = ("etcmodel/sums_test.py", "etcmodel/user_test.py")
MODULE = '''
LIMIT = 7


class Table:
    def get(self, x):
        """Returns one."""
        total = call(
            x,  # A comment.
            scale=self.scale,
        )
        if x < 0 and total < 0:
            total -= 1
        return min(x, 0) if x else min(total, 0)

    def other(self):
        def inner(y):
            return call(y, scale=1.0)

        return inner(1)
'''


class AppliedTest(unittest.TestCase):
    def apply(self, replace, by, function=":Table.get", occurrence=0):
        mutation = mutate.Mutation(
            f"etcmodel.x{function}", "why", replace, by, (), occurrence
        )
        return mutation.applied_to(MODULE)

    def test_replacements(self):
        for replace, by, expected, *place in (
            ("call(x, scale=self.scale)", "x", "total = x"),
            ("scale=self.scale", "scale=2", "call(x, scale=2)"),
            ("total -= 1", "pass", "        pass"),
            ("x < 0 and A", "A", "if total < 0:"),
            ("A and A", "A", None),
            ("min(A, 0)", "A", None),
            ("min(A, 0)", "A", "x if x else min(total", ":Table.get", 1),
            ("min(A, 0)", "-A", "min(x, 0) if x else -total", ":Table.get", 2),
            ("min(A, 0)", "A", None, ":Table.get", 3),
            ("1.0", "2.0", "scale=2.0", ":Table.other.inner"),
            # `1` does not match the function's `1.0`.
            ("1", "2.0", None, ":Table.other.inner"),
            ("1.0", "2.0", None),
            ("7", "8", "LIMIT = 8", ""),
            ("7", "8", None, ":Table.no_such"),
        ):
            with self.subTest(replace=replace, place=place):
                if expected is None:
                    with self.assertRaisesRegex(ValueError, "etcmodel.x"):
                        self.apply(replace, by, *place)
                else:
                    self.assertIn(expected, self.apply(replace, by, *place))


class MutateTest(unittest.TestCase):
    def setUp(self):
        names = ("modules", "run_tests", "suite_plugin")
        tools = {
            f"tools/{name}.py": (modules.ROOT / f"tools/{name}.py").read_text()
            for name in names
        }
        root = small_project.make_project(self, FILES | tools)
        self.folder = root / "tools" / "mutations"
        self.folder.mkdir()
        for module, name, value in (
            (modules, "ROOT", root),
            (mutate, "FOLDER", self.folder),
        ):
            self.enterContext(mock.patch.object(module, name, value))
        # The caches may hold modules of the project that a test used before.
        small_project.clear_caches(modules)
        self.addCleanup(small_project.clear_caches, modules)

    def write(self, *changes, tests=TESTS):
        entries = [
            {
                "function": "etcmodel.sums:add",
                "why": f"{replace} becomes {by}",
                "replace": replace,
                "by": by,
                "tests": list(tests),
            }
            for replace, by in changes
        ]
        (self.folder / "sums.yaml").write_text(yaml.safe_dump(entries))

    def run_tool(self, *arguments):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = mutate.main(arguments)
        return code, printed.getvalue()

    def test_noticed_and_unnoticed_mutations(self):
        self.write(("a + b", "a * b"), ("a + b", "abs(a + b)"))
        code, printed = self.run_tool("etcmodel/sums.py")
        self.assertEqual(1, code)
        first, second, last = printed.splitlines()
        # 2 * 2 equals 2 + 2, so only the test of the importing module notices.
        self.assertRegex(first, "^caught .*user_test.py::test_difference")
        self.assertRegex(second, "^UNNOTICED .*: a . b becomes abs")
        self.assertEqual("2 mutations, 1 unnoticed", last)
        self.assertEqual(
            FILES["etcmodel/sums.py"],
            (modules.ROOT / "etcmodel/sums.py").read_text(),
        )
        for place, count in (
            ("etcmodel/sums.py", 2),
            ("etcmodel", 2),
            ("sums.py", 2),
            ("sum", 0),
        ):
            printed = self.run_tool("--list", place)[1]
            self.assertEqual(count, printed.count("becomes"), place)

    def test_tests_that_always_fail_notice_nothing(self):
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

    def test_a_mutation_must_fit(self):
        for change, tests, message in (
            (("a - b", "a"), TESTS, "etcmodel.sums:add: .* 0 times.*: a - b"),
            (("a + b", "(a+b)"), TESTS, "changes nothing"),
            (("a + b", "a"), ["etcmodel/no.py"], "no.py does not exist"),
        ):
            self.write(change, tests=tests)
            with self.assertRaisesRegex(ValueError, message):
                mutate.read_mutations()


class ListTest(unittest.TestCase):
    def test_all_mutations_fit_the_code(self):
        self.assertLessEqual(len(mutate.read_mutations()), 160)


if __name__ == "__main__":
    unittest.main()
