import inspect

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.estimators.arguments import suggest_names


class _Model:
    @suggest_names
    def __init__(self, *, size: int = 1, depth: int = 2):
        self.sizes = size, depth

    @classmethod
    @suggest_names
    def from_file(cls, path, *, size: int = 1):
        return cls(size=size), path


@suggest_names
def _train(rows, *, epochs=1):
    return rows, epochs


class SuggestNamesTest(tf.test.TestCase):
    def test_arguments_pass_through(self):
        self.assertEqual((3, 2), _Model(size=3).sizes)
        model, path = _Model.from_file(path="a", size=4)
        self.assertEqual(((4, 2), "a"), (model.sizes, path))
        self.assertEqual(([1], 2), _train([1], epochs=2))

    def test_signature_is_kept(self):
        self.assertEqual(
            "(*, size: int = 1, depth: int = 2)",
            str(inspect.signature(_Model)),
        )

    def test_unknown_names(self):
        for call, message in (
            (
                lambda: _Model(siez=1),
                "_Model has no option 'siez'. Did you mean size? Choose from: "
                "size, depth.",
            ),
            (
                lambda: _Model.from_file("a", pat=1),
                "_Model has no option 'pat'. Did you mean path? Choose from: "
                "size.",
            ),
            (
                lambda: _train([], self=1),
                "_train has no option 'self'. Choose from: epochs.",
            ),
        ):
            with self.assertRaises(UserError) as raised:
                call()
            self.assertEqual(message, str(raised.exception))


if __name__ == "__main__":
    tf.test.main()
