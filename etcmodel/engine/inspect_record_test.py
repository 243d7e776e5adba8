import os
import pathlib
import shutil
from unittest import mock

import tensorflow as tf

from etcmodel.engine import explain
from etcmodel.engine import inspect_record
from etcmodel.engine import trained_model
from etcmodel.errors import UserError
from etcmodel.inspection import attention_picture
from etcmodel.models import EtcConfig
from etcmodel.tasks.wikihop.preprocessor import WikiHopPreprocessor
from testing import attention_maps
from testing.tasks import CommandTestCase
from testing.tasks import write_json
from testing.tasks import write_run
from testing.tasks import write_small_wikihop


class InspectRecordTest(CommandTestCase):
    def _inspect(self, **options):
        path, vocab_file = write_small_wikihop(self.directory, 2)
        values = {
            "task": "wikihop",
            "input": path,
            "vocab_file": vocab_file,
            "output": self.path("record.png"),
            **options,
        }
        return inspect_record.inspect_record(inspect_record.Options(**values))

    def test_model_of_a_run(self):
        """Uses the run's sizes, vocabulary and model, not an experiment's."""
        run = self.path("run")
        os.mkdir(run)
        vocab_file = os.path.join(run, "vocab.txt")
        sizes = {"long_length": 9, "global_length": 16, "max_num_sentences": 8}
        records = {
            "preprocessing_config": sizes,
            "vocab_file": "vocab.txt",
            "vocab_fingerprint": "",
            "tokenizer": None,
        }
        note = {"task": "wikihop", "experiment": "etc/wikihop_flat"}
        params = {"task": {"model": {"flat_sequence": False}}}
        write_run(run, {**note, "records": records}, params)
        write_json(
            os.path.join(run, "etc_config.json"),
            EtcConfig.from_preset("tiny", local_radius=3).to_dict(),
        )
        _, other = write_small_wikihop(self.directory, 2)
        shutil.copy(other, vocab_file)
        with mock.patch.object(
            attention_picture, "draw_attention_picture"
        ) as drawing:
            result = self._inspect(vocab_file=None, like=run)
            self.assertRegex(result.text, r"experiment: +etc/wikihop_flat\n")
            self.assertRegex(result.text, r"long length: +9$")
            self.assertIn("lower case", result.tokenizer)
            found = drawing.call_args.args[0]
            # <int>[1, long, 2 radius + 1].
            self.assertEqual(7, found.l2l_att_mask.shape[-1])
            # With `experiment`, the radius is that of its preset, 84.
            self._inspect(
                vocab_file=None, like=run, experiment="etc/wikihop_flat"
            )
            flat = drawing.call_args.args[0]
            self.assertEqual(169, flat.l2l_att_mask.shape[-1])
            os.remove(os.path.join(run, "etc_config.json"))
            with self.assertRaisesRegex(UserError, "has no etc_config.json"):
                self._inspect(vocab_file=None, like=run)

    def test_errors_name_options(self):
        for options, message in (
            ({"experiment": "etc/nq"}, "`experiment=etc/nq` is of the task nq"),
            ({"task": "read_twice_triviaqa"}, "`task=read_twice_triviaqa`: "),
            ({"first_token": 99}, "`first_token=99`: expected at most 16"),
            ({"output": "a.html"}, "`output=a.html`: the page .* `model_dir`"),
            ({"task": None}, "needs `task` or `model_dir`"),
            ({"query": "Who?"}, "`query=Who.`: Only a trained model"),
            ({"window": 2}, "`window=2`: Only a trained model"),
            ({"output": "a.gif"}, "`output=a.gif`: expected a name that ends"),
        ):
            with self.assertRaisesRegex(UserError, message):
                self._inspect(**options)

    def test_errors_with_a_model(self):
        run = self.path("run")
        os.mkdir(run)
        write_run(run, {"task": "wikihop", "experiment": "etc/wikihop"}, {})
        given = {"vocab_file": None, "task": None, "model_dir": run}
        for options, message in (
            ({"first_token": 2}, "`first_token=2`: The run in `model_dir`"),
            ({"like": run}, "`like=.*`: The run in `model_dir` has its own"),
            ({"token": 2, "output": "a.html"}, "`token=2`: Only pictures"),
            ({"task": "nq"}, "`task=nq`: the run .* is of the task wikihop"),
            ({"token": -1}, "`token` is -1, but must be at least 0"),
        ):
            with self.assertRaisesRegex(UserError, message):
                self._inspect(**{**given, **options})

    def test_files_of_a_map(self):
        """Writes the page or the picture of a map that is given."""
        run = self.path("run")
        os.mkdir(run)
        records = {
            "preprocessing_config": {},
            "vocab_file": "vocab.txt",
            "vocab_fingerprint": "",
        }
        note = {"task": "wikihop", "experiment": "etc/wikihop"}
        write_run(run, {**note, "records": records}, {})
        given = {"vocab_file": None, "task": None, "model_dir": run}
        trained = mock.Mock()
        trained.metadata = {"preprocessing_config": {}, "reading": {}}
        trained.preprocessor.tokenizer.settings = None
        with (
            mock.patch.object(trained_model, "load", return_value=trained),
            mock.patch.object(
                explain, "explain", return_value=attention_maps.make_map()
            ) as explained,
        ):
            for name, start, options in (
                ("map.html", b"<!DOCTYPE html>", {"window": 2}),
                ("map.png", b"\x89PNG", {"token": 1}),
            ):
                path = self.path(name)
                result = self._inspect(**given, output=path, **options)
                self.assertEqual(path, result.picture)
                self.assertRegex(result.text, "Predicted answer: +jan\n")
                with open(path, "rb") as stream:
                    self.assertStartsWith(stream.read(20), start)
            with self.assertRaisesRegex(UserError, "`token=9`: .* at most 2"):
                self._inspect(**given, token=9)
            letter = self.path("letter.txt")
            pathlib.Path(letter).write_text("Jan is here.\n\nBrno.\n")
            answers = {"query": "Who?", "candidate": ["Jan", "Mia"]}
            trained.preprocessor.of_text = WikiHopPreprocessor.of_text
            self._inspect(**given, input=letter, **answers)
            raw, record = explained.call_args.args[2:4]
            self.assertIsNone(record)
            self.assertEqual(
                {
                    "query": "Who?",
                    "candidates": ["Jan", "Mia"],
                    "supports": ["Jan is here.", "Brno."],
                },
                raw,
            )
            with self.assertRaisesRegex(UserError, "questions: give `query`"):
                self._inspect(**given, input=letter)
            with self.assertRaisesRegex(UserError, "`query` applies to plain"):
                self._inspect(**given, query="Who?")
            self._inspect(**given)
        windows = [x.args[4] for x in explained.call_args_list]
        self.assertEqual([2, 0, 0, 0, 0], windows)
        raw, record = explained.call_args.args[2:4]
        self.assertEqual("small_0", record.id)
        self.assertEqual("city jan", raw["query"])


if __name__ == "__main__":
    tf.test.main()
