import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.typed_links import TypedLink


class TypedLinkTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (dict(source="both"), "the source 'long' or 'global', got 'both'"),
        (dict(source="global", opens_hard_masks=True), "no hard mask"),
        (dict(back_label=3), "back_label` is 3"),
        (dict(label=-1), "from 0 on, got -1 and None"),
        (dict(source="global", back_label=-2), "got None and -2"),
    )
    def test_errors(self, attributes, message):
        with self.assertRaisesRegex(ValueError, f"`x` .*{message}"):
            TypedLink([[0]], **attributes).check("x")
        TypedLink([[0]]).check("x")


if __name__ == "__main__":
    tf.test.main()
