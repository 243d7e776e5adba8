import os

import numpy as np
import tensorflow as tf

from etcmodel.checkpoints import files


class OpenCheckpointTest(tf.test.TestCase):
    def write(self, name, value):
        path = os.path.join(self.get_temp_dir(), name)
        tf.raw_ops.SaveV2(
            prefix=path,
            tensor_names=["x"],
            shape_and_slices=[""],
            tensors=[tf.constant(value)],
        )
        return path

    def test_chooses_the_latest_or_only_checkpoint(self):
        folder = self.get_temp_dir()
        path = self.write("one", 1)
        for place in (folder, path):
            self.assertEqual(1, files.open_checkpoint(place).read("x"))
        self.write("two", 2)
        with self.assertRaisesRegex(FileNotFoundError, "several"):
            files.open_checkpoint(folder)
        with open(os.path.join(folder, "checkpoint"), "w") as stream:
            stream.write('model_checkpoint_path: "two"\n')
        self.assertEqual(2, files.open_checkpoint(folder).read("x"))
        with self.assertRaisesRegex(FileNotFoundError, "three"):
            files.open_checkpoint(os.path.join(folder, "three"))

    def test_damaged(self):
        path = self.write("one", 1)
        with open(f"{path}.index", "wb") as stream:
            stream.write(b"nothing")
        with self.assertRaisesRegex(ValueError, "damaged"):
            files.open_checkpoint(path)
        os.remove(f"{path}.data-00000-of-00001")
        with self.assertRaisesRegex(FileNotFoundError, "is incomplete"):
            files.open_checkpoint(path)

    def test_damaged_values(self):
        path = self.write("one", list(range(1000)))
        data = f"{path}.data-00000-of-00001"
        with open(data, "rb") as stream:
            content = stream.read()
        for damaged in (content[:9], content[:50] + b"?" + content[51:]):
            with open(data, "wb") as stream:
                stream.write(damaged)
            checkpoint = files.open_checkpoint(path)
            with self.assertRaisesRegex(ValueError, "is damaged"):
                checkpoint.read("x")


class AssignTest(tf.test.TestCase):
    def test_all_or_nothing(self):
        weights = {"a": tf.Variable([1.0]), "b": tf.Variable([2.0])}
        values = {"a": np.array([3.0]), "b": np.array([4.0])}
        shapes = {name: x.shape for name, x in values.items()}
        with self.assertRaisesRegex(
            ValueError, "missing.*:\n  b\n.*the model:\n  c$"
        ):
            files.assign(weights, {"a": (1,)}, values.get, ["c"], "It")
        with self.assertRaisesRegex(ValueError, r"not in the model:\s+c"):
            files.assign(weights, shapes, values.get, ["c"], "It")
        with self.assertRaisesRegex(ValueError, r"a \[2\], in the model \[1\]"):
            files.assign(weights, shapes | {"a": (2,)}, values.get, [], "It")

        def read(name):
            if name == "b":
                raise ValueError("damaged")
            return values[name]

        with self.assertRaisesRegex(ValueError, "damaged"):
            files.assign(weights, shapes, read, [], "It")
        self.assertAllEqual([1.0], weights["a"])
        files.assign(weights, shapes, values.get, [], "It")
        self.assertAllEqual([4.0], weights["b"])

    def test_message_lists_all_names(self):
        names = [f"name{i}" for i in range(30)]
        with self.assertRaises(ValueError) as raised:
            files.assign({}, {}, None, names, "It")
        self.assertEqual(names, str(raised.exception).split()[-30:])


if __name__ == "__main__":
    tf.test.main()
