import dataclasses
import unittest

from absl import flags

from etcmodel.pipeline import options


@dataclasses.dataclass(kw_only=True)
class _Base:
    """Shared options.

    Attributes:
        name: what it is
            called.
        rate: the rate.
    """

    name: str
    rate: float | None = options.option(None, max_value=1.0)


@dataclasses.dataclass(kw_only=True)
class _Flags(_Base):
    """Options of the flags.

    Attributes:
        number: how many.
        skipped: how many not.
        mode: which one.
        file: one of several.
        fast: whether to hurry.
    """

    number: int = 3
    skipped: int = 0
    mode: str = options.option("a", one_of=["a", "b"])
    file: list[str] | None = options.option(None, several=True)
    fast: bool = False


class OptionsTest(unittest.TestCase):
    def _parse(self, *arguments):
        flag_values = flags.FlagValues()
        options.define(flag_values, _Flags)
        flag_values(["program", *arguments])
        return flag_values

    def test_values(self):
        flag_values = self._parse(
            "--name=x", "--rate=0.5", "--file=a", "--file=b", "--fast"
        )
        self.assertEqual(
            ("x", 0.5, 3, 0, "a", ["a", "b"], True),
            tuple(
                flag_values[name].value
                for name in "name rate number skipped mode file fast".split()
            ),
        )
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
                self._parse(argument)
        self.assertEqual(0, self._parse("--skipped=0").skipped)

    def test_required(self):
        self.assertEqual(["name"], options.required(_Flags))


if __name__ == "__main__":
    unittest.main()
