import dataclasses

from absl.testing import absltest
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.pipeline import options


@dataclasses.dataclass(kw_only=True)
class _Options:
    """Options of different types.

    Attributes:
        name: path of
            a file.
    """

    name: str = options.option(path="file")
    rate: float | None = options.option(None, max_value=1.0)
    number: int = 3
    skipped: int = 0
    mode: str = options.option("a", one_of=["a", "b"])
    file: list[str] | None = options.option(None, several=True)
    fast: bool = False
    sizes: dict = dataclasses.field(
        default_factory=dict, metadata={"is_flag": False}
    )


class OptionsTest(parameterized.TestCase):
    def test_metadata_of_fields(self):
        self.assertEqual(["name"], options.required(_Options))
        self.assertEqual({"name": "file"}, options.paths(_Options))
        self.assertIs(float, options.type_of(_Options, "rate"))
        self.assertEqual(
            {"name": "path of a file."}, options.descriptions(_Options)
        )

    @parameterized.parameters(
        {},
        {"rate": 1},
        {"rate": 0.0, "skipped": 0, "mode": "b", "file": ["x"], "fast": True},
    )
    def test_valid(self, **values):
        options.check(_Options(name="x", **values))

    @parameterized.parameters(
        ("name", 3, "`name` is 3, but must be a string."),
        ("name", None, "`name` is None, but must be a string."),
        ("number", 0, "`number` is 0, but must be at least 1."),
        ("number", 2.5, "`number` is 2.5, but must be a whole number."),
        ("number", True, "`number` is True, but must be a whole number."),
        ("skipped", -1, "`skipped` is -1, but must be at least 0."),
        ("rate", 1.5, "`rate` is 1.5, but must be at least 0 and at most 1."),
        ("rate", "fast", "`rate` is 'fast', but must be a number."),
        ("mode", "c", "`mode` is 'c', but must be one of a, b."),
        ("file", ["x", 3], "`file` is 3, but must be a string."),
        ("fast", 1, "`fast` is 1, but must be True or False."),
    )
    def test_invalid(self, name, value, message):
        with self.assertRaises(UserError) as raised:
            options.check(_Options(**{"name": "x", name: value}))
        self.assertEqual(message, str(raised.exception))


if __name__ == "__main__":
    absltest.main()
