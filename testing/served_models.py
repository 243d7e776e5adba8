"""Small SavedModels for tests of the server, without a neural network."""

import json
import os

import tensorflow as tf

from etcmodel.serving import exported

REQUEST = {"texts": [["a"]]}


class _Counter(tf.Module):
    """Counts the bytes of texts; multiplies the counts by `factor`."""

    def __init__(self, factor: int):
        super().__init__()
        self.factor = tf.Variable(factor)

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.string, "texts")]
    )
    def count(self, texts):
        """Returns each record's joined text, and its texts' scaled lengths."""
        check = tf.debugging.Assert(
            tf.reduce_all(texts != "bad"), ["The text is bad."]
        )
        with tf.control_dependencies([check]):
            # [records, texts]
            lengths = tf.strings.length(texts) * self.factor
            # [records]
            answer = tf.strings.reduce_join(texts, axis=1)
        return {"answer": answer, "lengths": lengths}


def write_model(directory: str, factor: int = 1) -> None:
    """Writes a model of the task "counting", as `export` would."""
    module = _Counter(factor)
    partial = f"{directory}.partial"
    tf.saved_model.save(
        module, partial, signatures={"serving_default": module.count}
    )
    metadata = {
        "task": "counting",
        "options": {},
        "axes": {
            "serving_default": {
                "inputs": {"texts": ["records", "texts"]},
                "outputs": {"lengths": ["texts"]},
            }
        },
    }
    path = os.path.join(partial, exported.METADATA_FILE)
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(metadata, stream)
    os.rename(partial, directory)
