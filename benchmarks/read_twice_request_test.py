import os
from unittest import mock

import tensorflow as tf

from benchmarks import measure
from benchmarks import program
from benchmarks import read_twice_request
from testing import reading


class ReadTwiceRequestTest(tf.test.TestCase):
    def test_a_small_story(self):
        """More tokens than a segment has, and a process of some size."""
        folder = self.get_temp_dir()
        _, vocab = reading.write_small_narrativeqa(folder, 1)
        story = os.path.join(folder, "long.content")
        with open(story, "w") as stream:
            stream.write("Jan lives in Oslo. " * 30)
        values = program.parse(
            *(read_twice_request.PROGRAM, f"--story={story}"),
            *(f"--vocab_file={vocab}", "--presets=tiny", "--repeats=1"),
        )
        with mock.patch.object(
            measure, "in_fresh_process", lambda call, *args: call(*args)
        ):
            (row,) = program.run(read_twice_request.PROGRAM, values)
        self.assertEqual(5 * 30, row["tokens"])
        # 64 tokens less the question, of which 16 are shared.
        self.assertBetween(row["segments"], 3, 5)
        self.assertGreater(min(row["first_s"], row["median_s"]), 0)
        self.assertGreater(row["peak_mb"], 300)


if __name__ == "__main__":
    tf.test.main()
