import os
import sys
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from matplotlib import colormaps
from matplotlib import colors

from etcmodel import feature_utils as side_inputs_lib
from etcmodel.errors import UserError
from etcmodel.inspection import attention_labels
from etcmodel.inspection import attention_picture


def _side_inputs(long_len=6, global_len=2, max_distance=2):
    """Returns inputs; each of two global tokens is linked to half the text."""
    return side_inputs_lib.make_global_local_transformer_side_inputs(
        long_breakpoints=np.eye(1, long_len, long_len - 1, dtype=np.int32),
        global_breakpoints=np.eye(
            1, global_len, global_len - 1, dtype=np.int32
        ),
        sentence_ids=np.arange(long_len, dtype=np.int32)[None] * 2 // long_len,
        local_radius=1,
        relative_pos_max_distance=max_distance,
        use_hard_g2l_mask=True,
    )


def _read_png(path):
    """Reads an image as `<uint8>[height, width, 3]`."""
    return tf.io.decode_png(tf.io.read_file(path), channels=3).numpy()


def _share_of_color(image, color):
    """Returns the fraction of an image's pixels that have a colour."""
    rgb = 255 * np.array(colors.to_rgb(color))
    return np.mean(np.all(np.abs(image - rgb) <= 1, axis=-1))


class DrawAttentionPictureTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def _draw(self, name="picture.png", **arguments):
        """Draws six long and two global tokens; returns the path."""
        path = os.path.join(self.directory, name)
        defaults = {
            "side_inputs": _side_inputs(),
            "long_labels": list("abcdef"),
            "global_labels": list("xy"),
        }
        result = attention_picture.draw_attention_picture(
            path=path, **{**defaults, **arguments}
        )
        self.assertEqual(result, path)
        return path

    def test_colors(self):
        path = self._draw(
            long_labels=["the", "##ory", "of", "$5", "▁x_1$", "."],
            global_labels=["<a>", "<b>"],
            title="Example",
        )
        image = _read_png(path)
        self.assertGreater(min(image.shape[:2]), 500)
        # The square has 8 x 8 cells and is about half of the picture, so one
        # cell is about three quarters of a percent.
        names = attention_picture._COLORS
        for name, num_cells in (
            ("the token itself", 8),
            ("linked", 12),
            ("not linked", 6),
        ):
            share = _share_of_color(image, names[name])
            self.assertBetween(share, 0.004 * num_cells, 0.012 * num_cells)
        for name in ("right", "left"):
            near = colormaps[names[name]](0.9)[:3]
            self.assertGreater(_share_of_color(image, near), 0.01)
        self.assertEqual(_share_of_color(image, names["may attend"]), 0)
        self.assertGreater(_share_of_color(image, names["masked"]), 0.3)

    def test_links_with_their_own_labels(self):
        side_inputs = side_inputs_lib.make_multihop_side_inputs(
            [[0, 0, 0, 0, 0, 1]],
            [[-1] * 6],
            [[0, 0, 0, 1, 1, 1]],
            [[0, 1]],
            local_radius=1,
            relative_pos_max_distance=2,
            links=[
                side_inputs_lib.TypedLink([[1, 1, -1, -1, -1, -1]], label=1),
                side_inputs_lib.TypedLink([[1, -1]], "global", 0, 9),
            ],
        )
        path = self._draw("links.svg", side_inputs=side_inputs)
        with open(path) as stream:
            text = stream.read()
        for name in ("link 1", "link 2", "link 10"):
            self.assertIn(f"<!-- {name} -->", text)
        self.assertNotIn("<!-- link 3 -->", text)
        image = _read_png(self._draw(side_inputs=side_inputs))
        of_links = attention_picture._COLORS["link"]
        # Link 2 has two pairs in both directions; links 1 and 10 have one pair
        # in one direction. Link 10 reuses a colour.
        self.assertGreater(
            _share_of_color(image, of_links[1]),
            2 * _share_of_color(image, of_links[0]),
        )
        for i in (0, 9 % len(of_links)):
            self.assertGreater(_share_of_color(image, of_links[i]), 0.002)

    def test_colors_are_distinguishable(self):
        scheme = attention_labels.LabelScheme(12)
        rgb = {x: attention_picture._color(scheme, x) for x in range(-1, 34)}
        self.assertLen(set(rgb.values()), len(rgb))
        for i, first in rgb.items():
            for j, second in rgb.items():
                # Greater distances have paler colours.
                if i < j and not {i, j} <= {*range(1, 25)}:
                    self.assertGreater(
                        np.abs(np.subtract(first, second)).sum(), 0.15, (i, j)
                    )

    def test_the_note_is_complete(self):
        """Checks that a note wider than the square is not cut off."""
        note = "Shown: " + 20 * "many words " + "."
        figure = attention_picture._draw(
            np.zeros([2, 2], int),
            ["x", "y"],
            1,
            attention_labels.LabelScheme(2),
            "title",
            note,
        )
        figure.draw_without_rendering()
        (axes,), (legend,) = figure.axes, figure.legends
        extent = axes.title.get_window_extent()
        self.assertEqual(note.split(), axes.get_title().split())
        self.assertGreaterEqual(extent.x0, 0)
        self.assertLess(extent.x1, legend.get_window_extent().x0)
        self.assertLess(extent.y1, figure.bbox.y1)

    def test_without_labels(self):
        image = _read_png(self._draw(side_inputs=_side_inputs(max_distance=0)))
        names = attention_picture._COLORS
        self.assertGreater(_share_of_color(image, names["may attend"]), 0.1)
        self.assertEqual(_share_of_color(image, names["linked"]), 0)

    def test_window_of_a_long_record(self):
        labels = [f"token{i}" for i in range(300)] + ["[PAD]"] * 100
        limits = {"MAX_LONG_TOKENS": 5, "MAX_GLOBAL_TOKENS": 3}
        with (
            mock.patch.multiple(attention_picture, **limits),
            mock.patch.object(attention_picture, "_draw") as draw,
        ):
            draw.return_value.savefig = lambda stream, **_: stream.write(b"x")
            self._draw(
                side_inputs=_side_inputs(long_len=400, global_len=60),
                long_labels=labels,
                global_labels=[f"global{i}" for i in range(50)],
                first_long_token=100,
            )
        matrix, names, num_global, scheme, _, note = draw.call_args.args
        self.assertEqual(matrix.shape, (8, 8))
        self.assertEqual(names[:3], ["global0", "global1", "global2"])
        self.assertEqual(names[3:], labels[100:105])
        self.assertEqual(num_global, 3)
        self.assertEqual(scheme.max_distance, 2)
        self.assertEqual(
            note,
            "Shown: long tokens 100 to 104 of 300, 3 of 50 global tokens "
            "(those linked with the text shown come first); padding left out.",
        )

    def test_small_window_of_a_full_size_record(self):
        path = self._draw(
            side_inputs=_side_inputs(
                long_len=4096, global_len=64, max_distance=12
            ),
            long_labels=["a rather long name of a token"] * 4096,
            global_labels=["sentence"] * 64,
            title="T" * 500,
        )
        height, width, _ = _read_png(path).shape
        self.assertBetween(height, 1500, 3500)
        self.assertBetween(width, 1500, 3500)

    def test_failure_leaves_the_old_file(self):
        path = os.path.join(self.directory, "picture.unknown")
        with open(path, "w") as stream:
            stream.write("old")
        with self.assertRaisesRegex(ValueError, "unknown"):
            self._draw("picture.unknown")
        with open(path) as stream:
            self.assertEqual(stream.read(), "old")
        self.assertLen(os.listdir(self.directory), 1)
        with self.assertRaisesRegex(UserError, "directory"):
            self._draw("")

    @parameterized.parameters(
        (dict(long_labels=["", "[PAD]"]), "long_labels.*no token labels"),
        (dict(global_labels=[]), "global_labels.*no token labels"),
        (dict(long_labels=["a"] * 7), "7 long and 2 global.* 6 and 2"),
        (dict(first_long_token=6), "first_long_token.*6.*0 to 5"),
    )
    def test_bad_arguments(self, arguments, message):
        with self.assertRaisesRegex(ValueError, message):
            self._draw(**arguments)

    def test_matplotlib_is_missing(self):
        with mock.patch.dict(sys.modules, matplotlib=None):
            with self.assertRaisesRegex(ImportError, "pip install"):
                self._draw()


if __name__ == "__main__":
    tf.test.main()
