import json
import os

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.tasks import lifted
from etcmodel.tasks import tfrecords


class LiftedTest(tf.test.TestCase):
    def test_records_of_another_vocabulary(self):
        folder = self.get_temp_dir()
        vocab = os.path.join(folder, "words.txt")
        with open(vocab, "w") as stream:
            stream.write("one\ntwo\n")
        records = {"vocab_fingerprint": "x", "directory": "data"}
        # Nothing is known of the weights, or of the records.
        lifted.check_vocabulary(folder, records)
        lifted.write(folder, "words.txt", "bert")
        lifted.check_vocabulary(folder, None)
        own = {"vocab_fingerprint": tfrecords.fingerprint(vocab)}
        for place in (folder, os.path.join(folder, "model.ckpt")):
            lifted.check_vocabulary(place, own)
            with self.assertRaisesRegex(
                UserError, f"data were made .*--vocab_file={vocab}"
            ):
                lifted.check_vocabulary(place, records)
        with open(os.path.join(folder, lifted.FILE)) as stream:
            self.assertEqual("bert", json.load(stream)["from"])


if __name__ == "__main__":
    tf.test.main()
