import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import checkpoints
from etcmodel import models
from etcmodel.checkpoints import vocabularies
from etcmodel.weight_paths import get_weight_paths
from testing import small_berts
from testing import tasks
from testing.tasks import CommandTestCase
from testing.tasks import run_cli


class LiftTest(CommandTestCase, parameterized.TestCase):
    def assert_fails(self, result, *messages):
        """Ignores the lines that say what the command is doing."""
        super().assert_fails(tasks.without_phases(result), *messages)

    def setUp(self):
        super().setUp()
        self.source = self.path("bert")
        os.mkdir(self.source)
        self.bert, self.weights = small_berts.make_bert(self.source)
        self.output = self.path("lifted")

    def lift(self, *arguments):
        return run_cli(
            "lift",
            f"--from={self.source}",
            f"--output_dir={self.output}",
            "--preset=tiny",
            *arguments,
        )

    def written_config(self, config_class):
        return config_class.from_json_file(checkpoints.config_file(self.output))

    def test_etc(self):
        # The source's tokenizer settings are copied with the vocabulary.
        said = {"do_lower_case": True, "strip_accents": False}
        tasks.write_json(
            os.path.join(self.source, "tokenizer_config.json"), said
        )
        out = self.assert_succeeds(
            self.lift(
                "--absolute_positions=paragraph",
                "--question_words_in_global",
                "--local_radius=6",
            )
        )
        self.assertIn(f"37 weights of {self.source} were lifted", out)
        self.assertIn(f"--vocab_file={self.output}/vocab.txt.", out)
        self.assertContainsSubset(
            [
                "etc_config.json",
                "lift.json",
                "lift.txt",
                "model.ckpt.data-00000-of-00001",
                "model.ckpt.index",
                "tokenizer_config.json",
                "vocab.txt",
            ],
            os.listdir(self.output),
        )
        written = tasks.read_json(
            os.path.join(self.output, "tokenizer_config.json")
        )
        self.assertEqual(said, {name: written[name] for name in said})
        config = self.written_config(models.EtcConfig)
        self.assertEqual(6, config.local_radius)
        self.assertTrue(config.question_words_in_global)
        model = models.EtcModel(config)
        checkpoints.load_etc(model, self.output)
        ids = [7, 10, 9, 6]
        self.assertAllClose(
            small_berts.encode_long(model, ids),
            small_berts.hidden_states(self.weights, small_berts.SIZES, ids),
            1e-5,
            1e-5,
        )
        with open(os.path.join(self.output, "lift.txt")) as stream:
            self.assertIn("pooler.dense.bias: left out (pooler)", stream.read())

    def test_read_twice_with_another_vocabulary(self):
        vocab = small_berts.write_vocab(
            self.path("new.txt"), [*small_berts.TOKENS, "more"]
        )
        out = self.assert_succeeds(
            self.lift("--model=read_twice", f"--vocab_file={vocab}")
        )
        self.assertIn("1 tokens of the vocabulary have no embedding", out)
        config = self.written_config(models.ReadTwiceConfig)
        self.assertEqual(12, config.vocab_size)
        model = models.ReadTwiceModel(config)
        checkpoints.load_read_twice(model, self.output)
        self.assertAllEqual(
            self.weights["embeddings.word_embeddings"][10],
            model.get_token_embedding_table()[10],
        )

    def test_a_first_read_of_fewer_layers(self):
        """Of two layers, one is in the first read and one in the second."""
        self.assert_succeeds(
            self.lift("--model=read_twice", "--num_hidden_layers=1")
        )
        config = self.written_config(models.ReadTwiceConfig)
        self.assertEqual(
            (1, 1),
            (config.num_hidden_layers, config.second_read_num_new_layers),
        )
        for layers, flags, message in (
            (3, ["--model=read_twice"], "2 layers in all"),
            (3, [], "is 3, expected 1 to 2"),
        ):
            flags = [*flags, "--overwrite", f"--num_hidden_layers={layers}"]
            self.assert_fails(self.lift(*flags), message)

    def test_read_twice_with_only_the_first_layers(self):
        """Of three layers, the last one is not used."""
        shapes = dict(small_berts.SHAPES)
        for name, shape in small_berts.SHAPES.items():
            if ".1." in name:
                shapes[name.replace(".1.", ".2.")] = shape
        weights = small_berts.make_weights(shapes=shapes)
        small_berts.write_hugging_face(
            self.source, weights, num_hidden_layers=3
        )
        self.assert_succeeds(
            self.lift("--model=read_twice", "--num_hidden_layers=1")
        )
        model = models.ReadTwiceModel(
            self.written_config(models.ReadTwiceConfig)
        )
        checkpoints.load_read_twice(model, self.output)
        kernels = [
            x.numpy()
            for path, x in get_weight_paths(model).items()
            if path.endswith("inner_layer/layers_0/kernel")
        ]
        self.assertLen(kernels, 2)
        for i in range(2):
            expected = weights[f"encoder.layer.{i}.intermediate.dense.kernel"]
            self.assertTrue(any(np.array_equal(expected, x) for x in kernels))

    def test_only_the_first_layers(self):
        self.assert_succeeds(self.lift("--num_hidden_layers=1"))
        config = self.written_config(models.EtcConfig)
        self.assertEqual(1, config.num_hidden_layers)
        with open(os.path.join(self.output, "lift.txt")) as stream:
            report = stream.read()
        self.assertIn("left out (only 1 layers are used)", report)
        model = models.EtcModel(config)
        checkpoints.load_etc(model, self.output)
        kernels = [
            x
            for path, x in get_weight_paths(model).items()
            if path.endswith("/inner_layer/layers_0/kernel")
        ]
        self.assertNotEmpty(kernels)
        expected = self.weights["encoder.layer.0.intermediate.dense.kernel"]
        for kernel in kernels:
            self.assertAllEqual(expected, kernel)

    def test_a_vocabulary_that_lacks_tokens(self):
        lines = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "One"]
        small_berts.write_vocab(self.path("bert", "vocab.txt"), lines)
        settings = {"do_lower_case": False}
        tasks.write_json(self.path("bert", "tokenizer_config.json"), settings)
        out = self.assert_succeeds(self.lift())
        self.assertIn("has no [unused0], [unused2], [unused3], [unused4]", out)
        self.assertIn("5 spare rows are left out", out)
        with open(os.path.join(self.output, "vocab.txt")) as stream:
            written = stream.read().split("\n")
        self.assertEqual(lines, written[:6])
        # `split` adds an empty string, because the file ends with a newline.
        self.assertLen(written, 6 + 4 + 1)
        written = tasks.read_json(
            os.path.join(self.output, "tokenizer_config.json")
        )
        self.assertIs(written["do_lower_case"], False)
        config = self.written_config(models.EtcConfig)
        self.assertEqual(10, config.vocab_size)

    def test_warns_once_of_a_doubtful_vocabulary(self):
        kinship = vocabularies.Kinship(pairs=200, share=0.5)
        with (
            mock.patch.object(
                vocabularies, "measure_kinship", return_value=kinship
            ),
            self.assertNoLogs("absl", "WARNING"),
        ):
            out = self.assert_succeeds(self.lift())
        self.assertEqual(1, out.count("does not seem to be the vocabulary"))

    def test_errors(self):
        os.rename(self.path("bert", "vocab.txt"), self.path("vocab.txt"))
        self.assert_fails(self.lift(), "no vocabulary file for tokenizing")
        pieces = self.path("vocab.json")
        tasks.write_json(pieces, {"<s>": 0, "one": 1})
        self.assert_fails(
            self.lift(f"--vocab_file={pieces}"),
            f"{pieces} is RoBERTa's vocabulary.*Pass the equivalent",
        )
        vocab = f"--vocab_file={self.path('vocab.txt')}"
        self.assert_fails(self.lift(vocab, "--preset=huge"), "huge")
        self.assertFalse(os.path.exists(self.output))


if __name__ == "__main__":
    tf.test.main()
