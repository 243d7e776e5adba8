import numpy as np
import tensorflow as tf

from etcmodel.serving import warmup
from testing.saved_models import read_warmup_requests


class ServingWarmupTest(tf.test.TestCase):
    def test_protobuf_reads_the_requests(self):
        directory = self.get_temp_dir()
        expected = [
            (
                "serving_default",
                {
                    "query": np.array([b"caf\xc3\xa9 " * 99], dtype=object),
                    "supports": np.array([[b"a", b""]], dtype=object),
                },
            ),
            ("features", {"ids": np.arange(600, dtype=np.int64)[None]}),
        ]
        warmup.write_warmup_requests(directory, "wikihop", expected)
        found = read_warmup_requests(directory)
        self.assertEqual([x for x, _ in expected], [x for x, _ in found])
        for (_, inputs), (_, found_inputs) in zip(expected, found, strict=True):
            self.assertEqual(
                {name: value.tolist() for name, value in inputs.items()},
                {name: value.tolist() for name, value in found_inputs.items()},
            )

    def test_known_bytes(self):
        log = warmup.prediction_log("m", "s", {})
        # predict_log (6) > request (1) > model_spec (1) > name, signature_name.
        self.assertEqual(b"\x32\x0a\x0a\x08\x0a\x06\x0a\x01m\x1a\x01s", log)


if __name__ == "__main__":
    tf.test.main()
