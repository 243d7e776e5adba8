import os

import numpy as np
import tensorflow as tf
from safetensors import numpy as safetensors_numpy

from etcmodel.checkpoints import safetensors_files


class SafetensorsFilesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.get_temp_dir()

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, **metadata):
        tensors = {"a": np.ones([2], np.float32)}
        safetensors_numpy.save_file(tensors, self.path(name), metadata)

    def test_aliases(self):
        # Metadata has other entries, and may name tensors that do not exist.
        self.write("x.safetensors", format="pt", b="a", a="c", d="gone")
        tensors = safetensors_files.read(self.path("x.safetensors"))
        self.assertEqual({"b": "a"}, tensors.aliases)
        self.assertAllEqual([1, 1], tensors.arrays["a"])

    def test_which_file(self):
        for name in ("pytorch_model.bin", "tf_model.h5", "model.pt"):
            with self.assertRaisesRegex(
                FileNotFoundError, f"{name}: .*cannot read.*save_pretrained"
            ):
                safetensors_files.find_file(self.path(name), self.folder)
        for names, message in (
            ([], "Download all files of the model"),
            (["tf_model.h5"], r"another format \(tf_model.h5\).*save_pretr"),
            (["a.safetensors"], "Pass a file: .*a.safetensors"),
        ):
            for name in names:
                with open(self.path(name), "w"):
                    pass
            with self.assertRaisesRegex(FileNotFoundError, message):
                safetensors_files.find_file(self.folder, self.folder)
        checkpoint = self.path("bert_model.ckpt")
        self.assertIsNone(safetensors_files.find_file(checkpoint, self.folder))
        index = self.path("model.safetensors.index.fp16.json")
        self.assertEqual(index, safetensors_files.find_file(index, self.folder))
        self.write("model.safetensors")
        self.assertEqual(
            self.path("model.safetensors"),
            safetensors_files.find_file(self.folder, self.folder),
        )


if __name__ == "__main__":
    tf.test.main()
