import os

import tensorflow as tf

from etcmodel.engine import lift
from etcmodel.errors import UserError
from testing.tasks import CommandTestCase


class LiftTest(CommandTestCase):
    """Tests errors; `cli.lift_test` lifts weights."""

    def test_errors_name_options(self):
        source = self.path("empty")
        os.mkdir(source)
        for options, message in (
            ({}, f"`from={source}`: "),
            ({"from_": "gone"}, "`from=gone`: there is no such"),
            (
                {"model": "read_twice", "own_text_bias": 3.0},
                "`own_text_bias` needs `model=etc`",
            ),
            ({"model": "bert"}, "`model` is 'bert', but must be one of etc"),
        ):
            values = {"from_": source, "output_dir": self.path("x"), **options}
            with self.assertRaisesRegex(UserError, message):
                lift.lift(lift.Options(**values))
            self.assertFalse(os.path.exists(self.path("x")))


if __name__ == "__main__":
    tf.test.main()
