"""Tests of the classes' signatures; `estimator_test.py` trains models."""

import inspect
import typing
from collections.abc import Sequence

import tensorflow as tf
from absl.testing import parameterized

import etcmodel
from etcmodel.estimators import estimator
from etcmodel.estimators.results import Label
from etcmodel.pipeline import options as options_lib
from etcmodel.tasks import registry
from etcmodel.tasks.documents.document_options import UNITS

_CLASSES = (
    etcmodel.DocumentClassifier,
    etcmodel.SentenceSelector,
    etcmodel.QuestionAnswerer,
)


def _options(function):
    """Returns the options in a signature, with their types."""
    hints = typing.get_type_hints(inspect.unwrap(function))
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        assert parameter.kind is not parameter.VAR_KEYWORD, name
        if parameter.kind is parameter.KEYWORD_ONLY:
            kind, none = typing.get_args(hints[name])
            assert parameter.default is None and none is type(None), name
            found[name] = kind
    return found


class SignaturesTest(tf.test.TestCase, parameterized.TestCase):
    """Checks that signatures have the options of the tasks, with types."""

    @parameterized.parameters(*_CLASSES)
    def test_options_match_the_task(self, kind):
        spec, expected = registry.get(kind.task), {}
        for options in (
            spec.preprocessing_config_class,
            spec.model_options,
            spec.options,
        ):
            for field in options_lib.flag_fields(options):
                one_of = field.metadata.get("one_of")
                if field.name == "units":
                    one_of = ("auto", *UNITS[: 3 + options.HAS_BLOCKS])
                expected[field.name] = (
                    {*one_of}
                    if one_of
                    else {options_lib.type_of(options, field.name)}
                )
        for function in (kind.__init__, kind.from_pretrained):
            found = _options(function)
            self.assertEqual([*expected], [*found])
            for name, hint in found.items():
                if name == "labels":
                    # Numbers are also accepted, and converted to strings.
                    self.assertEqual(Sequence[Label], hint)
                    hint = Sequence[str]
                types = {*typing.get_args(hint)} or {hint}
                self.assertEqual(expected[name], types, name)

    def test_load_has_the_options_of_all_tasks(self):
        found = {}
        for kind in reversed(_CLASSES):
            found |= _options(kind.__init__)
        self.assertEqual(found, _options(etcmodel.load))

    @parameterized.parameters(*_CLASSES)
    def test_docstrings_describe_the_options(self, kind):
        text = f"{kind.__doc__} {estimator.Estimator.__doc__}"
        for name in _options(kind.__init__):
            self.assertRegex(text, f"(?m)^ *{name}: |`{name}`")


if __name__ == "__main__":
    tf.test.main()
