import os
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel import run_paths


class DirectoryTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("gs://b/runs/1/ckpt-3", "gs://b/runs/1"),
        ("gs://b/runs/1/best_ckpt/best_ckpt-500", "gs://b/runs/1"),
        ("gs://b/runs/1/best_ckpt/", "gs://b/runs/1"),
        ("best_ckpt/best_ckpt-500", ""),
        ("1/ckpt-3", "1"),
        ("/ckpt-3", "/"),
    )
    def test_directory_of_a_checkpoint(self, path, expected):
        """Uses paths that do not exist."""
        gfile = tf.io.gfile
        with (
            mock.patch.object(gfile, "isdir", lambda x: x.endswith("/")),
            mock.patch.object(gfile, "exists", return_value=False),
        ):
            self.assertEqual(expected, run_paths.directory(path))

    def test_run_with_the_name_of_best_checkpoints(self):
        path = os.path.join(self.get_temp_dir(), "best_ckpt")
        os.mkdir(path)
        with open(os.path.join(path, "params.yaml"), "w"):
            pass
        for place in (path, f"{path}/", f"{path}/ckpt-3"):
            self.assertEqual(path, run_paths.directory(place))


if __name__ == "__main__":
    tf.test.main()
