"""Tests the conversions to other formats in docs/encoders.md."""

import os
import pathlib
import re
import tempfile
import unittest

import numpy as np

from etcmodel import models
from testing.conformance import cases

_PAGE = pathlib.Path(__file__).parents[2] / "docs" / "encoders.md"
# Inputs that are padded with -1.
_POSITIONS = ("sentence_ids", "paragraph_ids", "linked_ids")


class LiteRTTest(unittest.TestCase):
    def _block(self):
        """Returns the page's two LiteRT snippets: build a model, convert it."""
        (block,) = re.findall(
            r"(?s)## LiteRT\n.*?```\n(.*?)```", _PAGE.read_text("utf-8")
        )
        make, convert = re.split(r"(?m)(?<=^encoder = )(?=.*$)", block)
        line, rest = convert.split("\n", 1)
        return make + line, rest

    def test_outputs_equal_the_encoders(self):
        values, (make, _) = {}, self._block()
        exec(make, values)
        self._check(values)

    def test_long_texts_that_need_several_blocks(self):
        """Uses a text that local attention splits into several blocks."""
        values, (make, _) = {}, self._block()
        exec(make.rpartition("encoder = ")[0], values)
        sizes = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 8}
        sizes |= {"num_hidden_layers": 1, "local_radius": 5}
        config = models.EtcConfig.from_preset(
            "tiny", use_hard_g2l_mask=True, use_hard_l2g_mask=True, **sizes
        )
        values["encoder"] = models.build_encoder(
            config, "paragraphs", long_length=600, global_length=40
        )
        self._check(values)

    def _check(self, values):
        """Converts `encoder` with the page's code; compares the outputs."""
        encoder = values["encoder"]
        cases.randomize(encoder)
        rng = np.random.default_rng(0)
        text = {
            name: rng.integers(
                -1 if name.endswith(_POSITIONS) else 0,
                4,
                [1, *x.shape[1:]],
                np.int32,
            )
            for name, x in encoder.input.items()
        }
        for name in filter(lambda x: "breakpoints" in x, text):
            # A batch of one text.
            text[name] = np.eye(1, text[name].size, text[name].size - 1)
            text[name] = text[name].astype(np.int32)
        values["text"] = text
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)
        exec(self._block()[1], values)
        expected = encoder(text)
        self.assertEqual(set(expected), set(values["outputs"]))
        for name, output in values["outputs"].items():
            self.assertGreater(np.std(expected[name]), 0.1)
            np.testing.assert_allclose(output, expected[name], atol=1e-4)


if __name__ == "__main__":
    unittest.main()
