import inspect
import pathlib
import unittest
from unittest import mock

import tensorflow as tf

from etcmodel import models
from etcmodel.ops.attention import blocks
from tools import write_architecture

ROOT = pathlib.Path(__file__).resolve().parents[1]


class ArchitectureTest(unittest.TestCase):
    def test_the_picture_is_that_of_the_imports(self):
        page = (ROOT / write_architecture.PAGE).read_text("utf-8")
        self.assertEqual(
            page,
            write_architecture.with_picture(page),
            "Run: python -m tools.write_architecture",
        )

    def test_some_arrows(self):
        arrows = write_architecture.arrows()
        self.assertIn(("layers", "ops"), arrows)
        self.assertIn(("models", "layers"), arrows)
        self.assertIn(("tasks", "pipeline"), arrows)
        # By way of `models`.
        self.assertNotIn(("training", "layers"), arrows)
        # Downwards only.
        self.assertFalse(arrows & {(b, a) for a, b in arrows})

    def test_hops_from_a_model_to_where_a_mask_meets_a_score(self):
        """They are those on the page."""
        page = (ROOT / write_architecture.PAGE).read_text("utf-8")
        paths = []

        def key_blocks(self, *arguments):
            files = [
                pathlib.Path(frame.filename) for frame in inspect.stack()[1:]
            ]
            paths.append(
                [
                    str(file.relative_to(ROOT / "etcmodel"))
                    for file in files
                    if file.is_relative_to(ROOT / "etcmodel")
                ]
            )
            return original(self, *arguments)

        original = blocks.LongQueries.key_blocks
        config = models.EtcConfig(
            vocab_size=5,
            hidden_size=4,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=4,
            local_radius=2,
        )
        with mock.patch.object(blocks.LongQueries, "key_blocks", key_blocks):
            models.EtcModel(config)(
                tf.ones([1, 6], tf.int32),
                tf.ones([1, 2], tf.int32),
                att_implementation="sparse",
            )
        (path,) = paths
        # The wrappers that every call passes through are no hops.
        hops = list(dict.fromkeys(path[::-1]))
        hops.remove("models/etc/encoder_layer.py")
        hops.remove("layers/graph_layer.py")
        hops.remove("ops/shared_graphs.py")
        self.assertLessEqual(len(hops) - 1, 5)
        places = [page.index(f"`{hop}`") for hop in hops]
        self.assertEqual(places, sorted(places))


if __name__ == "__main__":
    unittest.main()
