import os

import tensorflow as tf
from absl.testing import parameterized
from official.core import exp_factory

from etcmodel.engine import overrides
from etcmodel.errors import UserError
from etcmodel.tasks import registry


def _defaults():
    registry.register_experiments("wikihop")
    return exp_factory.get_exp_config("etc/wikihop")


class OverridesTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, text):
        path = os.path.join(self.get_temp_dir(), "params")
        with open(path, "w") as stream:
            stream.write(text)
        return path

    @parameterized.parameters(
        "a.b=1,a.c=[1,2],d=x y",
        "a: {b: 1, c: [1, 2]}\nd: x y",
        '{"a": {"b": 1, "c": [1, 2]}, "d": "x y"}',
    )
    def test_forms(self, text):
        expected = {"a": {"b": 1, "c": [1, 2]}, "d": "x y"}
        self.assertEqual(expected, overrides.read(text, "--flag"))
        path = self._write(text)
        self.assertEqual(expected, overrides.read(path, "--flag"))
        self.assertEqual(expected, overrides.read_file(path, "--flag"))

    def test_numbers(self):
        self.assertEqual(
            {"a": 1e-5, "b": 3, "c": True, "d": None},
            overrides.read("a=1e-5,b=3,c=true,d=null", "--flag"),
        )

    def test_whole_numbers_for_floats(self):
        """Converts ints to floats, which the optimizer needs."""
        params = _defaults()
        rate = "trainer.optimizer_config.learning_rate"
        text = (
            f"{rate}.polynomial.initial_learning_rate=1,"
            f"{rate}.stepwise.values=[1,2.5],trainer.train_steps=3"
        )
        values = overrides.read(text, "--flag")
        overrides.check(values, params, "--flag")
        found = values["trainer"]["optimizer_config"]["learning_rate"]
        self.assertEqual(
            "{'initial_learning_rate': 1.0} [1.0, 2.5] 3",
            f"{found['polynomial']} {found['stepwise']['values']} "
            f"{values['trainer']['train_steps']}",
        )

    def test_plain_values_of_python(self):
        """Reads tuples in the form that the Model Garden writes."""
        self.assertEqual(
            {"a": (1, 2.5e4)},
            overrides.read("a: !!python/tuple [1, 2.5e4]", "--flag"),
        )

    @parameterized.parameters(
        ("nonsense", "--flag='nonsense' holds no parameters. Give a.b=1,c.d"),
        ("a: [\n", r"--flag: it is not YAML \(.*: line 2 "),
        ("a: " + "[" * 100_000, "--flag: it is not YAML .*nested too deep"),
        ("[" * 100_000, "nested too deep"),
        ("a: !!python/name:os.system", "not YAML .*could not determine"),
        ("", "holds no parameters"),
    )
    def test_texts_without_parameters(self, text, message):
        with self.assertRaisesRegex(UserError, message):
            overrides.read(text, "--flag")
        with self.assertRaisesRegex(UserError, "--flag: "):
            overrides.read_file(self._write(text), "--flag")

    def test_unreadable_files(self):
        binary = self._write("")
        with open(binary, "wb") as stream:
            stream.write(b"\xff\xfe\x00\x01")
        for path in (binary, "/no/such/file"):
            with self.assertRaisesRegex(UserError, "--flag: cannot be read"):
                overrides.read_file(path, "--flag")

    @parameterized.parameters(
        ("task.model.encoder.hiden_size=3", "no parameter task.*hiden_size. "),
        ("task.model.encoder.hiden_size=3", "mean task.model.encoder.hidden_"),
        ("tsk.model=3", "no parameter tsk. Did you mean task?"),
        ("trainer: {on: 5}", "trainer.True is not the name of a parameter"),
        ("task.zzz=3", "Choose one of: .*model, train_data, validation_data"),
        ("task.model=5", "task.model is 5, but must hold.*: encoder, long_"),
        ("trainer.train_steps=abc", "is 'abc', but must be a whole number."),
        ("trainer.train_steps=1.5", "is 1.5, but must be a whole number."),
        ("trainer.train_steps=true", "is True, but must be a whole number."),
        ("task.model.encoder.hidden_size=x", "a whole number or null"),
        ("task.model.use_links=1", "is 1, but must be true or false."),
        ("task.label_smoothing=x", "is 'x', but must be a number."),
        ("task.model.encoder.preset=1", "is 1, but must be a text."),
        (
            "trainer.optimizer_config.optimizer.type=adm",
            "optimizer.type is 'adm', but must be one of .*adamw.*lamb",
        ),
        (
            "trainer.optimizer_config.optimizer.adamw.beta=3",
            "Did you mean trainer.optimizer_config.optimizer.adamw.beta_",
        ),
    )
    def test_mistakes(self, text, message):
        values = overrides.read(text, "--flag")
        with self.assertRaisesRegex(UserError, f"^--flag: .*{message}"):
            overrides.check(values, _defaults(), "--flag")

    @parameterized.parameters(
        "task.label_smoothing=1,task.model.encoder.hidden_size=null",
        "task.train_data.input_path=[a,b]",
        "trainer.optimizer_config.optimizer.type=lamb",
        "trainer.optimizer_config.ema.average_decay=0.9",
    )
    def test_valid_parameters(self, text):
        overrides.check(overrides.read(text, "--flag"), _defaults(), "--flag")

    def test_configurations_of_all_experiments(self):
        """`check` accepts all configurations that `train` writes."""
        for task, spec in registry.tasks().items():
            registry.register_experiments(task)
            for name in spec.experiments:
                params = exp_factory.get_exp_config(name)
                overrides.check(params.as_dict(), params, "--flag")


if __name__ == "__main__":
    tf.test.main()
