"""What is wrong on a command line is named."""

from absl import app
from absl import flags
from absl.testing import absltest

from benchmarks import program


class ProgramTest(absltest.TestCase):
    def test_arguments_that_are_no_flags(self):
        program.check_no_arguments(["program"])
        with self.assertRaisesRegex(app.UsageError, "argument: one$"):
            program.check_no_arguments(["program", "one", "two"])

    def test_choices(self):
        values = flags.FlagValues()
        flags.DEFINE_list("modes", ["xla"], "", flag_values=values)
        values(["program"])
        program.check_choices(values, {"modes": ("graph", "xla")})
        with self.assertRaisesRegex(
            app.UsageError,
            r"--modes: unknown \['xla'\]; there are \['graph'\]\.",
        ):
            program.check_choices(values, {"modes": ("graph",)})


if __name__ == "__main__":
    absltest.main()
