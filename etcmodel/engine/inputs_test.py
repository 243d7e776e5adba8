from absl.testing import absltest

from etcmodel.engine import inputs
from etcmodel.errors import UserError
from etcmodel.pipeline.spec import load
from etcmodel.tasks import registry
from testing import helpers


class InputsTest(absltest.TestCase):
    def test_options_override_like(self):
        task = registry.get("classify")
        like = {"preprocessing_config": {"long_length": 32, "units": "texts"}}

        def make(like=like, **values):
            config = inputs.preprocessing_config(task, values, like)
            return config.long_length, config.units

        self.assertEqual((4096, "auto"), make(None))
        self.assertEqual((32, "texts"), make())
        # "auto" takes the value of the other records.
        self.assertEqual((16, "texts"), make(long_length=16, units="auto"))
        self.assertEqual((32, "blocks"), make(units="blocks"))
        for values, message in (
            ({"long_length": -1}, "`long_length` is -1"),
            ({"width": 3}, "`width=3`: classify has no such size"),
        ):
            with self.assertRaisesRegex(UserError, message):
                make(**values)

    def test_names_of_fields(self):
        """Files may lack fields whose names come from the training records."""
        task = registry.get("select")
        with self.assertRaisesRegex(
            UserError, "`reading=id=x`: select has no .* of: text_field, query"
        ):
            inputs.parse_reading(task, ["id=x"])
        given = inputs.parse_reading(task, ["text_field=a=b"])
        self.assertEqual({"text_field": "a=b"}, given)
        noted = {"text_field": "c", "query_field": "d", "label_field": "e"}
        like = {"preprocessing_config": {}, "reading": noted}
        config = inputs.preprocessing_config(task, given, like)
        self.assertEqual(
            {**noted, "text_field": "a=b"}, task.noted_fields(config)
        )
        rows = [{"a=b": [["Jan is here."]], "e": [[0, 0]]}]
        with self.assertRaisesRegex(UserError, "no record has the field 'd'"):
            list(inputs.read_format(task, config).read_rows(rows, "dev"))
        read = inputs.read_format(task, config, {"query_field", "label_field"})
        (record,) = read.read_rows(rows, "dev")
        self.assertEqual(((0, 0),), record.selected)

    def test_titles(self):
        """All three tasks read a title, which files may lack."""
        rows = [{"body": "Jan is here.", "subject": "Oslo"}, {"body": "Eve."}]
        path = helpers.write_file(self, iter(rows), "rows.jsonl")
        other = helpers.write_file(self, iter(rows[1:]), "other.jsonl")
        given = {"title_field": "subject", "text_field": "body"}
        for name in ("classify", "select", "answer"):
            task = registry.get(name)
            if name == "answer":
                given = {**given, "query_field": "body"}
            config = task.make_preprocessing_config(given)
            noted = task.noted_fields(config)
            self.assertEqual("subject", noted["title_field"])
            for read in (
                task.format(config).read(path, "predict"),
                task.format(config).read_rows(rows, "predict"),
                inputs.format_of_model(task, {}, noted, {}).read(
                    path, "predict"
                ),
            ):
                raw = load(task.preprocessor).raw
                titles = [raw(record)["titles"] for record in read]
                self.assertEqual([["Oslo"], [""]], titles)
            with self.assertRaisesRegex(UserError, "has the field 'subject'"):
                list(task.format(config).read(other, "predict"))
            model = inputs.format_of_model(task, {}, noted, {})
            self.assertLen(list(model.read(other, "predict")), 1)

    def test_split(self):
        with self.assertRaisesRegex(
            UserError, "`split=all`: nq has no .* of: train"
        ):
            inputs.check_split(registry.get("nq"), "all")


if __name__ == "__main__":
    absltest.main()
