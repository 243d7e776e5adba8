import io
import os
from unittest import mock

import tensorflow as tf

from etcmodel.engine import progress


class ProgressTest(tf.test.TestCase):
    def test_moves_to_positions(self):
        paths = [os.path.join(self.get_temp_dir(), x) for x in "ab"]
        for path in paths:
            with open(path, "wb") as stream:
                stream.write(b"x" * 50)
        bars = []
        original = progress.tqdm.tqdm

        def make(**kwargs):
            # The bar is hidden, but counts.
            kwargs.update(disable=False, file=io.StringIO())
            bars.append(original(**kwargs))
            return bars[0]

        with mock.patch.object(progress.tqdm, "tqdm", make):
            with progress.file_progress(paths, "Reading") as bar:
                for position in (40, 40, 100):
                    bar.at(position)
                bar.done(2)
                self.assertEqual(100, bars[0].n)
                self.assertEqual(100, bars[0].total)
                self.assertEqual("2 records", bars[0].postfix)

    def test_missing_file_counts_as_empty(self):
        with progress.file_progress(["/no/such/file"], "Reading") as bar:
            bar.at(3)


class _Terminal(io.StringIO):
    """Fake terminal: keeps lines of text and the cursor's position."""

    def isatty(self):
        return True

    def lines(self):
        """Returns the lines that are visible at the end."""
        shown = []
        for line in self.getvalue().split("\n"):
            # Text after "\r" overwrites the beginning of the line.
            text = ""
            for part in line.split("\r"):
                text = part + text[len(part) :]
            shown.append(text.rstrip())
        return shown


class TrainingProgressTest(tf.test.TestCase):
    """Shows a first step of 80 s, four steps of 2 s, and a validation."""

    def _train(self, out, err, first=0):
        self.now = 0.0
        with (
            mock.patch.object(progress.sys, "stderr", err),
            progress.TrainingProgress(
                first + 5, 2, out, clock=lambda: self.now
            ) as show,
        ):
            before = out.getvalue() + err.getvalue()
            for step in range(1, 6):
                self.now += 80 if step == 1 else 2
                show.step(first + step, 10.0 / step)
                if step == 3:
                    self.now += 100
                    show.validated("Validation at step 3: f1 0.5")
        # Only the graph is mentioned before the first step.
        self.assertIn("Building the graph", before)
        self.assertNotIn("/5", before)

    def test_lines_in_a_file(self):
        """The speed excludes the first step and the validation."""
        for out, err in (
            (io.StringIO(), io.StringIO()),
            (_Terminal(), io.StringIO()),
        ):
            self._train(out, err)
            self.assertEqual(
                [
                    "Building the graph; the first step takes a while.",
                    "Step 1 of 5: loss 10",
                    "Step 2 of 5: loss 5, 2 s/step, 00:06 left",
                    "Validation at step 3: f1 0.5",
                    "Step 4 of 5: loss 2.5, 2 s/step, 00:02 left",
                    "Step 5 of 5: loss 2, 2 s/step, 00:00 left",
                ],
                out.getvalue().splitlines(),
            )
            self.assertEmpty(err.getvalue())

    def test_lines_of_a_run_that_is_resumed(self):
        out = io.StringIO()
        self._train(out, io.StringIO(), first=101)
        self.assertEqual(
            [
                "Step 102 of 106: loss 10",
                "Step 104 of 106: loss 3.333, 2 s/step, 00:04 left",
                "Step 106 of 106: loss 2, 2 s/step, 00:00 left",
            ],
            [x for x in out.getvalue().splitlines() if "Step" in x],
        )

    def test_bar_in_a_terminal(self):
        """The bar starts after the first step, and lines do not break it."""
        screen = _Terminal()
        self._train(screen, screen)
        self.assertIn("1/5 [00:00<?", screen.getvalue())
        self.assertNotIn("0/5", screen.getvalue())
        self.assertIn("loss 3.333", screen.getvalue())
        self.assertEqual(
            [
                "Building the graph; the first step takes a while.",
                "Validation at step 3: f1 0.5",
                "",
            ],
            screen.lines(),
        )

    def test_lines_in_a_terminal_without_a_size(self):
        """Lines replace the bar, which tqdm hides in such terminals."""
        screen = _Terminal()
        screen.fileno = lambda: 2
        with mock.patch.object(
            progress.os,
            "get_terminal_size",
            return_value=os.terminal_size((0, 0)),
        ):
            self._train(screen, screen)
        self.assertIn("Step 4 of 5", screen.getvalue())

    def test_bar_and_a_file(self):
        """The terminal gets a bar and the file gets lines."""
        out, screen = io.StringIO(), _Terminal()
        self._train(out, screen)
        self.assertLen(out.getvalue().splitlines(), 6)
        self.assertIn("Training", screen.getvalue())


if __name__ == "__main__":
    tf.test.main()
