import dataclasses
import unittest

from absl import flags

from etcmodel.cli import flags as flags_lib
from etcmodel.pipeline import options
from testing.flags import parse_options


@dataclasses.dataclass(kw_only=True)
class _Base:
    """Base class of options.

    Attributes:
        name: what it is
            called.
        rate: the rate.
    """

    name: str
    rate: float | None = options.option(None, max_value=1.0)


@dataclasses.dataclass(kw_only=True)
class _Options(_Base):
    """Options of a command.

    Attributes:
        number: how many.
        skipped: how many not.
        mode: which one.
        file: one of several.
        fast: whether to hurry.
        from_: where from.
    """

    number: int = 3
    skipped: int = 0
    mode: str = options.option("a", one_of=["a", "b"])
    file: list[str] | None = options.option(None, several=True)
    fast: bool = False
    from_: str | None = None


@dataclasses.dataclass
class _Sizes:
    """Options of a task.

    Attributes:
        width: how wide.
        height: how high.
    """

    width: int = 4
    height: int = 5


class FlagsTest(unittest.TestCase):
    def test_options_of_flags(self):
        arguments = "--name=x --rate=0.5 --file=a --file=b --fast --from=y"
        expected = _Options(
            name="x", rate=0.5, file=["a", "b"], fast=True, from_="y"
        )
        self.assertEqual(expected, parse_options(_Options, *arguments.split()))
        flag_values = flags.FlagValues()
        flags_lib.define(flag_values, _Options)
        self.assertEqual("What it is called.", flag_values["name"].help)

    def test_bounds(self):
        for argument in (
            "--number=0",
            "--skipped=-1",
            "--rate=-0.1",
            "--rate=1.1",
            "--mode=c",
        ):
            with self.assertRaises(flags.Error, msg=argument):
                parse_options(_Options, "--name=x", argument)

    def test_only_given_options_of_a_task(self):
        kinds, flag_values = _WithTask, flags.FlagValues()
        flags_lib.define(flag_values, kinds)
        flags_lib.define(flag_values, _Sizes)
        flag_values(["program", "--height=5"])
        made = flags_lib.make_options(flag_values, kinds, _Sizes)
        self.assertEqual({"height": 5}, made.task_options)

    def test_names_in_a_text(self):
        text = "`seed=1`, `from_`, `from=x/y`; not `seeds` nor `a.seed=1`"
        self.assertEqual(
            "--seed=1, --from, --from=x/y; not `seeds` nor `a.seed=1`",
            flags_lib.as_flags(text, ["seed", "from"]),
        )


@dataclasses.dataclass(kw_only=True)
class _WithTask:
    """Options of a command with tasks.

    Attributes:
        task_options: the task's.
    """

    task_options: dict = dataclasses.field(
        default_factory=dict, metadata={"is_flag": False}
    )


if __name__ == "__main__":
    unittest.main()
