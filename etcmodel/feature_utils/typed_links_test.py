import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.typed_links import TypedLink


class TypedLinkTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (dict(source="both"), "the source 'long' or 'global', got 'both'"),
        (dict(source="global", opens_hard_masks=True), "hard masks never"),
        (dict(back_label=3), "`back_label` 3, expected None"),
        (dict(label=-1), "label -1 and the back label None, expected 0"),
        (dict(source="global", back_label=-2), "back label -2, exp"),
    )
    def test_errors(self, attributes, message):
        with self.assertRaisesRegex(ValueError, f"`x` .*{message}"):
            TypedLink([[0]], **attributes).check("x")
        TypedLink([[0]]).check("x")


if __name__ == "__main__":
    tf.test.main()
