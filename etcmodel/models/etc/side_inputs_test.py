import tensorflow as tf

from etcmodel.models.etc.side_inputs import SideInputs
from testing import model_inputs

_HARD_MASKS = {"use_hard_g2l_mask": True, "use_hard_l2g_mask": True}
_IGNORED = {"ignore_hard_g2l_types": (6, 7), "ignore_hard_l2g_types": (3,)}


class SideInputsTest(tf.test.TestCase):
    def test_sentences(self):
        batch = {
            k: tf.constant(v) for k, v in model_inputs.make_sentences().items()
        }
        side_inputs = SideInputs(4, 4, use_hard_g2l_mask=True)(batch)
        # Two sentences that see only their own tokens; the rest is padding.
        self.assertAllEqual(
            [[1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0, 0]],
            side_inputs["g2l_att_mask"][0, :2],
        )
        self.assertAllEqual([1, 1, 0], side_inputs["l2g_att_mask"][0, 0])
        self.assertAllEqual(
            [[1, 1, 0], [1, 1, 0]], side_inputs["g2g_att_mask"][0, :2]
        )
        # Labels 0 to 8 are distances; 9 stands for another sentence's global
        # token, 10 for that of the token's own sentence.
        self.assertAllEqual(
            [[10, 9], [10, 9], [9, 10]],
            side_inputs["l2g_relative_att_ids"][0, :3, :2],
        )

    def test_paragraphs(self):
        batch = {
            k: tf.constant(v) for k, v in model_inputs.make_paragraphs().items()
        }
        side_inputs = SideInputs(
            4,
            4,
            structure="paragraphs",
            **_HARD_MASKS,
            **_IGNORED,
        )(batch)
        # Rows: 2 candidates, question, paragraph, 2 sentences, padding.
        self.assertAllEqual(
            [
                [1, 1, 1, 1, 1, 0, 0],
                [1, 1, 1, 1, 1, 0, 0],
                [1, 0, 0, 0, 0, 0, 0],
                [1, 1, 1, 1, 1, 0, 0],
                [0, 1, 1, 0, 0, 0, 0],
                [0, 0, 0, 1, 1, 0, 0],
                [0, 0, 0, 0, 0, 0, 0],
            ],
            side_inputs["g2l_att_mask"][0],
        )
        # Question tokens see all global tokens; paragraph tokens see their own.
        self.assertAllEqual(
            [[1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 0, 0]],
            side_inputs["l2g_att_mask"][0, :2],
        )
        # Labels 0 to 8 are distances, 9 is "not linked", 10 is "linked".
        self.assertAllEqual(
            [10, 9, 9, 10, 10, 9, 9],
            side_inputs["l2g_relative_att_ids"][0, 1],
        )
        no_links = SideInputs(4, 4, structure="paragraphs", use_links=False)(
            batch
        )
        self.assertAllEqual(
            [9, 9, 9, 10, 10, 9, 9], no_links["l2g_relative_att_ids"][0, 1]
        )
        flat = SideInputs(4, 4, structure="paragraphs", flat_sequence=True)(
            batch
        )
        self.assertAllEqual(
            [0, 0, 0, 0, 1, 1, 1, 1, 1], flat["l2l_att_mask"][0, 0]
        )

    def test_without_labels(self):
        batch = {
            k: tf.constant(v) for k, v in model_inputs.make_sentences().items()
        }
        self.assertCountEqual(
            ["l2l_att_mask", "g2g_att_mask", "l2g_att_mask", "g2l_att_mask"],
            SideInputs(4, 0)(batch),
        )

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "'trees'"):
            SideInputs(4, 3, structure="trees")
        with self.assertRaisesRegex(ValueError, "flat_sequence"):
            SideInputs(4, 3, flat_sequence=True)


if __name__ == "__main__":
    tf.test.main()
