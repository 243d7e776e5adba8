import unittest

from etcmodel.checkpoints import bert_names


class BertNamesTest(unittest.TestCase):
    def test_common_name_in_three_formats(self):
        expected = "encoder.layer.3.output.dense.kernel"
        garden = "encoder/{}/_output_dense/kernel/.ATTRIBUTES/VARIABLE_VALUE"
        for name, replacements in (
            (
                "roberta.encoder.layer.3.output.dense.weight",
                bert_names.HUGGING_FACE,
            ),
            ("bert/encoder/layer_3/output/dense/kernel", bert_names.ORIGINAL),
            (garden.format("_transformer_layers/3"), bert_names.MODEL_GARDEN),
            (garden.format("layer_with_weights-7"), bert_names.MODEL_GARDEN),
        ):
            self.assertEqual(
                expected, bert_names.common_name(name, replacements)
            )

    def test_why_left_out(self):
        for name, reason in (
            ("cls/seq_relationship/output_bias", "next-sentence head"),
            ("encoder/layer_with_weights-16/kernel", "pooler"),
            ("bert/pooler/dense/bias", "pooler"),
            ("bert/encoder/layer_0/x/adam_v", "of the optimizer"),
            ("classifier.weight", "not of an encoder"),
        ):
            self.assertIn(reason, bert_names.why_left_out(name))


if __name__ == "__main__":
    unittest.main()
