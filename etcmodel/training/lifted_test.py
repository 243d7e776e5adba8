import json
import os
import types
from unittest import mock

import numpy as np
import tensorflow as tf
from absl import logging

from etcmodel.errors import UserError
from etcmodel.feature_utils.text import tokenizer_settings
from etcmodel.feature_utils.text import tokenizers
from etcmodel.feature_utils.text.tokenizer_settings import TokenizerSettings
from etcmodel.models import EtcConfig
from etcmodel.pipeline import tfrecords
from etcmodel.tasks import registry
from etcmodel.training import lifted
from etcmodel.training import runs
from testing import tasks

SETTINGS = TokenizerSettings(True, False, True, True, 100)


class LiftedTest(tasks.CommandTestCase):
    def write(self, *names, tokens=("one", "two")):
        """Writes a vocabulary; returns metadata of records made with it."""
        path = self.path(*names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as stream:
            stream.write("".join(f"{token}\n" for token in tokens))
        directory, name = os.path.split(path)
        return {
            "directory": directory,
            "preprocessing_config": {},
            "vocab_file": name,
            "vocab_size": len(tokens),
            "vocab_fingerprint": tfrecords.fingerprint(path),
            "tokenizer": SETTINGS._asdict(),
        }

    def assert_belongs_to(self, place, own, vocab_file):
        """Asserts that only records with the vocabulary of `own` pass."""
        other = self.write("data", "words.txt", tokens=("two", "one"))
        self.assertTrue(lifted.check_vocabulary(place, own))
        with self.assertRaisesRegex(
            UserError,
            f"{other['directory']} and the .*{place}.*different vocabularies "
            f".*{other['vocab_fingerprint']} and {own['vocab_fingerprint']}.*"
            f"`vocab_file={vocab_file}`",
        ):
            lifted.check_vocabulary(place, other)

    def assert_text_is_prepared_alike(self, place, own, vocab_file):
        """Asserts that records with other tokenizer settings are rejected."""
        settings = SETTINGS._replace(strip_accents=True)
        other = {**own, "tokenizer": settings._asdict()}
        with self.assertRaisesRegex(
            UserError,
            f"{place}.*different tokenizer .*'strip_accents': True.* and .*"
            f"'strip_accents': False.*`vocab_file={vocab_file}`",
        ):
            lifted.check_vocabulary(place, other)

    def test_lifted_weights(self):
        own = self.write("lifted", "words.txt")
        folder = own["directory"]
        lifted.write(folder, "words.txt", "bert", SETTINGS)
        self.assertEqual(tokenizer_settings.read_settings(folder), SETTINGS)
        lifted.check_vocabulary(folder, None)
        for place in (folder, os.path.join(folder, "model.ckpt")):
            self.assert_belongs_to(place, own, f"{folder}/words.txt")
            self.assert_text_is_prepared_alike(
                place, own, f"{folder}/words.txt"
            )
        with open(os.path.join(folder, lifted.FILE)) as stream:
            self.assertEqual("bert", json.load(stream)["from"])

    def test_weights_of_a_run(self):
        own, run = self.write("records", "words.txt"), self.path("run")
        spec = registry.get("wikihop")
        for metadata in (None, own):
            task = types.SimpleNamespace(
                metadata=metadata,
                describe_encoder=lambda model: (model.config, {}),
            )
            model = types.SimpleNamespace(config=EtcConfig.from_preset("tiny"))
            runs.save(task, model, spec, "etc/wikihop", run)
            if metadata is None:
                # The run has no metadata of its records.
                self.assertFalse(lifted.check_vocabulary(run, own))
        os.mkdir(self.path("run", "best_ckpt"))
        for name in ("", "ckpt-7", "best_ckpt", "best_ckpt/", "best_ckpt/x-7"):
            place = os.path.join(run, name)
            self.assert_belongs_to(place, own, f"{run}/words.txt")
            self.assert_text_is_prepared_alike(place, own, f"{run}/words.txt")

    def test_published_checkpoint(self):
        folder = self.path("published")
        os.mkdir(folder)
        tasks.write_json(os.path.join(folder, "etc_config.json"), {})
        records = self.write("data", "words.txt")
        self.assertFalse(lifted.check_vocabulary(folder, records))
        own = self.write("published", "vocab_english.txt")
        for place in (folder, os.path.join(folder, "model.ckpt")):
            self.assert_belongs_to(place, own, f"{folder}/vocab_english.txt")
        # TensorFlow opens file:// like gs://.
        place = f"file://{folder}"
        self.assert_belongs_to(place, own, f"{place}/vocab_english.txt")

    def test_a_folder_with_special_characters(self):
        records = self.write("words[1]*", "vocab.txt")
        folder = records["directory"]
        tasks.write_json(os.path.join(folder, "etc_config.json"), {})
        for place in (folder, f"file://{folder}"):
            self.assertTrue(lifted.check_vocabulary(place, records))

    def test_token_table_alone(self):
        """With the right vocabulary, words and plurals have similar rows."""
        words = [f"tree{a}{b}" for a in "abcdefghij" for b in "abcdefghijkl"]
        words += [f"{word}s" for word in words]
        tokens = [*tokenizers.WORDPIECE_RESERVED_TOKENS, *words]
        rng = np.random.default_rng(0)
        rows = rng.normal(size=[len(words) // 2, 8])
        table = np.concatenate([rng.normal(size=[10, 8]), rows, rows + 0.1])
        self.assertLen(table, len(tokens))
        own = self.write("data", "vocab.txt", tokens=tokens)
        with self.assertNoLogs("absl", "WARNING"):
            lifted.warn_of_vocabulary("it", own, table)
        shuffled = [*tokens[:10], *rng.permutation(words)]
        other = self.write("data", "vocab.txt", tokens=shuffled)
        with self.assertLogs("absl", "WARNING") as logs:
            lifted.warn_of_vocabulary("it", other, table)
        self.assertRegex(logs.output[0], "data/vocab.txt does not seem .* it")

    def test_heads(self):
        """Loads heads from a run of the same task and labels."""
        run = self.path("run")
        os.makedirs(run)
        spec = registry.get("classify")
        sizes = {"kind": "single", "labels": ["a", "b"]}
        task_model = mock.Mock(OUTPUTS=("kind", "labels"), sizes=sizes)
        task_model.OPTIONAL = ("part",)
        task_model.heads.return_value = [mock.Mock()]
        task_model.pretrained_heads.return_value = []
        for task, labels, is_there, message in (
            ("classify", ["a", "b"], True, None),
            (
                "classify",
                ["a", "b"],
                False,
                "is not in .*run/ckpt-1, so it is in",
            ),
            (
                "classify",
                ["b", "a"],
                True,
                "labels: the records' value differs from that of .*run",
            ),
            ("select", ["b", "a"], True, None),
        ):
            config = {"kind": "single", "labels": labels}
            records = {"preprocessing_config": config, "vocab_fingerprint": "1"}
            note = {"task": task, "experiment": "e", "records": records}
            tasks.write_json(os.path.join(run, "etcmodel.json"), note)
            with (
                mock.patch.object(
                    lifted.checkpoints, "load_head", return_value=is_there
                ) as load,
                self.assertLogs(level="ERROR") as logs,
            ):
                logging.error("end")
                lifted.load_heads(f"{run}/ckpt-1", spec, task_model, None)
            is_all = task == "classify" and labels == ["a", "b"]
            self.assertEqual(is_all, load.called)
            if load.called:
                self.assertEqual(("part",), load.call_args.args[2])
            self.assertRegex("".join(logs.output[1:]), message or "^$")


if __name__ == "__main__":
    tf.test.main()
