import io
import os
from unittest import mock

import tensorflow as tf

from etcmodel.tasks import progress


class ProgressTest(tf.test.TestCase):
    def test_moves_to_positions(self):
        paths = [os.path.join(self.get_temp_dir(), x) for x in "ab"]
        for path in paths:
            with open(path, "wb") as stream:
                stream.write(b"x" * 50)
        bars = []
        original = progress.tqdm.tqdm

        def make(**kwargs):
            # Shown to nobody, but counting.
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

    def test_missing_file_is_not_its_business(self):
        with progress.file_progress(["/no/such/file"], "Reading") as bar:
            bar.at(3)

    def test_nobody_watches(self):
        bar = progress.training_bar(10, True)
        bar.update(3)
        self.assertTrue(bar.disable)
        self.assertTrue(progress.training_bar(10, False).disable)


if __name__ == "__main__":
    tf.test.main()
