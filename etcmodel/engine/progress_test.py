import io
import os
from unittest import mock

import tensorflow as tf

from etcmodel.engine import progress


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


class WorkProgressTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.out, self.err = io.StringIO(), _Terminal()

    def _work(self, *arguments, has_bar=False):
        self.enter_context(mock.patch.object(progress.sys, "stderr", self.err))
        return progress.WorkProgress(
            *(*arguments, self.out),
            clock=lambda: self.now,
            has_bar=has_bar,
        )

    def test_lines_about_files(self):
        """Lines come after 5 s and then every 30 s."""
        with self._work("Reading", 400, "B") as show:
            for self.now in range(2, 41):
                show.at(10 * self.now)
                show.done(3)
        self.assertEqual(
            [
                "Reading: 9 records, 12%, 00:35 left",
                "Reading: 99 records, 88%, 00:05 left",
            ],
            self.out.getvalue().splitlines(),
        )
        self.assertEmpty(self.err.getvalue())

    def test_lines_about_batches(self):
        with self._work("Evaluating", 8, "batch") as show:
            show.validation_starts()
            for self.now in (1, 6, 18, 48):
                show.validating()
            show.validation_starts()
        self.assertEqual(
            [
                "Evaluating: the first batch takes a while",
                "Evaluating: batch 2 of 8, 25%, 00:30 left",
                "Evaluating: batch 4 of 8, 50%, 01:03 left",
            ],
            self.out.getvalue().splitlines(),
        )

    def test_bar(self):
        with self._work("Reading", 400, "B", has_bar=True) as show:
            self.now = 50.0
            show.at(100)
            show.at(400)
            show.done(2)
        self.assertIn("Reading: 100%", self.err.getvalue())
        self.assertEmpty(self.out.getvalue())

    def test_reporter(self):
        """Files that are missing, and quiet reporters, show nothing."""
        path = os.path.join(self.get_temp_dir(), "a")
        with open(path, "wb") as stream:
            stream.write(b"x" * 50)
        for style, paths, shown in (
            ("lines", [path], progress.WorkProgress),
            ("quiet", [path], progress.NoProgress),
            ("lines", ["/no/such/file"], progress.NoProgress),
        ):
            reporter = progress.Reporter(style, self.out)
            with reporter.files(paths, "Reading") as show:
                self.assertIs(shown, type(show))
                show.at(3)


class TrainingProgressTest(tf.test.TestCase):
    """Shows a first step of 80 s, four steps of 2 s, and two validations."""

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
                if step in (2, 3):
                    show.validation_starts()
                if step == 2:
                    self.now += 4
                    show.validating()
                    show.validated("Validation at step 2: f1 0.25")
                if step == 3:
                    for _ in range(4):
                        self.now += 25
                        show.validating()
                    show.validated("Validation at step 3: f1 0.5")
        # Only the graph is mentioned before the first step.
        self.assertIn("Building the graph", before)
        self.assertNotIn("/5", before)

    def test_lines_in_a_file(self):
        """The speed excludes the first step and the validations.

        The first validation says that it starts; each has a line after 5 s.
        """
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
                    "Validating; the first batch takes a while.",
                    "Validation at step 2: f1 0.25",
                    "Validation: batch 1",
                    "Validation: batch 3",
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
        self.assertIn(
            "loss 5, validation,", screen.getvalue().replace("]", ",")
        )
        self.assertIn("validation: batch 4", screen.getvalue())
        self.assertEqual(
            [
                "Building the graph; the first step takes a while.",
                "Validating; the first batch takes a while.",
                "Validation at step 2: f1 0.25",
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
        self.assertLen(out.getvalue().splitlines(), 10)
        self.assertIn("Training", screen.getvalue())


if __name__ == "__main__":
    tf.test.main()
