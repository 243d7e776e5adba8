import tempfile

import numpy as np
import tensorflow as tf

from etcmodel.inspection import pictures
from etcmodel.models import EtcConfig
from etcmodel.pipeline import example_maker
from etcmodel.readers.records import Source
from testing import toy_task as toy
from testing.tasks import write_test_vocab


class InspectionTest(tf.test.TestCase):
    def test_first_window_of_a_record(self):
        vocab_file = write_test_vocab(tempfile.mkdtemp(), toy.VOCAB)
        encoder = example_maker.of_task(
            toy.TASK, toy.Sizes(long_length=6), vocab_file
        )
        record = toy.ToyRecord(
            "x", "a bb zebra", "bb", source=Source("data.json", 3)
        )
        shown = pictures.inspect(
            encoder, record, EtcConfig.from_preset("tiny", local_radius=2)
        )
        self.assertEqual(["a", "bb", "[UNK]"], shown.long_labels)
        self.assertEqual(["words 0.0"], shown.global_labels)
        # <int>[1, long, 2 radius + 1]; the first token has no neighbours on its
        # left.
        self.assertEqual([1, 6, 5], shown.side_inputs.l2l_att_mask.shape)
        self.assertAllEqual(
            [0, 0, 1, 1, 1], np.array(shown.side_inputs.l2l_att_mask)[0, 0]
        )
        self.assertEqual(
            "record:      3 (id x)\n"
            "answer:      bb\n"
            "tokens:      3, of which 0 cut\n"
            "units:       1, of which 0 cut\n"
            "long length: 6",
            shown.text(),
        )


if __name__ == "__main__":
    tf.test.main()
