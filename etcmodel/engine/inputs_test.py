import types

from absl.testing import absltest

from etcmodel.engine import inputs
from etcmodel.errors import UserError
from etcmodel.tasks import registry


class InputsTest(absltest.TestCase):
    def test_options_of_a_task_override_those_of_other_records(self):
        task = registry.get("classify")
        like = {"preprocessing_config": {"long_length": 32, "units": "texts"}}

        def make(like=like, **values):
            options = types.SimpleNamespace(task_options=values)
            config = inputs.preprocessing_config(task, options, like)
            return config.long_length, config.units

        self.assertEqual((4096, "auto"), make(None))
        self.assertEqual((32, "texts"), make())
        # "auto" is what other records were found to be.
        self.assertEqual((16, "texts"), make(long_length=16, units="auto"))
        self.assertEqual((32, "blocks"), make(units="blocks"))
        for values, message in (
            ({"long_length": -1}, "`long_length` is -1"),
            ({"width": 3}, "`width=3`: classify has no such size"),
        ):
            with self.assertRaisesRegex(UserError, message):
                make(**values)

    def test_split(self):
        with self.assertRaisesRegex(UserError, "`split=all`: nq has train"):
            inputs.check_split(registry.get("nq"), "all")


if __name__ == "__main__":
    absltest.main()
