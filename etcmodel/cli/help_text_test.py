import dataclasses
import types

from absl import flags
from absl.testing import absltest

import etcmodel
from etcmodel.cli import flags as flags_lib
from etcmodel.cli import help_text


@dataclasses.dataclass(kw_only=True)
class _Options:
    """Options.

    Attributes:
        size: how large. Or how small.
        oven_temperature_in_kelvin: how hot; by default as the recipe says.
        port: the port. From 1.
        quiet: say nothing.
    """

    size: str
    oven_temperature_in_kelvin: float = 0.0
    port: int = 80
    quiet: bool = False


_HEAD = """\
python -m etcmodel make: flour -> cake

Example:

  etcmodel make --size=big
"""


class HelpTextTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        flag_values = flags.FlagValues()
        flags_lib.define(flag_values, _Options)
        self.module = types.SimpleNamespace(
            DESCRIPTION="\nMakes a cake.\n",
            EXAMPLE="\netcmodel make --size=big\n",
            Options=_Options,
        )
        self._about = "make", "flour -> cake", self.module, flag_values

    def test_short(self):
        """Only the first sentence of common flags, with their defaults."""
        self.assertIn("--[no]quiet ", help_text.short_help(*self._about))
        self.module.COMMON_FLAGS = ("oven_temperature_in_kelvin", "port")
        self.assertEqual(
            f"""{_HEAD}
  --size                How large (required)
  --oven_temperature_in_kelvin
                        How hot (default: 0.0)
  --port                The port (default: 80)

All about it: python -m etcmodel make --helpfull
""",
            help_text.short_help(*self._about),
        )

    def test_full(self):
        out = help_text.full_help(*self._about)
        for part in (
            "\n\nMakes a cake.\n\nExample:\n",
            "\nRequired:\n\n  --size\n      How large. Or how small.\n",
            "\nOptional:\n\n  --oven_temperature_in_kelvin",
            "  --port (default: 80)\n      The port. From 1.\n",
            "  --[no]quiet\n      Say nothing.\n",
        ):
            self.assertIn(part, out)

    def test_general(self):
        lines = help_text.general_help({"make": "flour -> cake"}).splitlines()
        self.assertIn("  make        flour -> cake", lines)

    def test_version(self):
        self.assertStartsWith(
            help_text.version(),
            f"etcmodel {etcmodel.__version__} (TensorFlow 2.",
        )


if __name__ == "__main__":
    absltest.main()
