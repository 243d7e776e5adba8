import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import plain_texts
from testing.helpers import write_file

WIKITEXT = """ \n = Crow = \n
 It eats 1 @,@ 000 things , and is black @-@ ish . \n
 = = Name = = \n
 It caws . \n It says x = y = z . \n
 = Elk = \n
 An elk . \n"""


class PlainTextsTest(tf.test.TestCase, parameterized.TestCase):
    def test_wikitext(self):
        path = write_file(self, WIKITEXT)
        self.assertTrue(plain_texts.is_wikitext(path))
        crow, elk = plain_texts.read_wikitext(path)
        lines = [x.strip() for x in crow.splitlines() if x.strip()]
        self.assertEqual(
            [
                "Crow",
                "It eats 1,000 things , and is black-ish .",
                "Name",
                "It caws .",
                "It says x = y = z .",
            ],
            lines,
        )
        self.assertIn("\n\nName\n\n", crow)
        self.assertEqual("Elk", elk.splitlines()[0])

    def test_joints_in_headings(self):
        path = write_file(self, " = Spider @-@ Man = \n \n He is .\n")
        (text,) = plain_texts.read_wikitext(path)
        self.assertEqual("Spider-Man\n\n \n He is .", text)

    def test_formulas_are_not_headings(self):
        """If the first heading has empty lines around it, all need them."""
        formulas = " = 1 henry and capacitance C = \n = = 3 = = \n"
        article = " = Coil = \n \n For L \n" + formulas + " it is 5 . \n \n"
        path = write_file(self, article + article.replace("Coil", "Wire"))
        for text, title in zip(
            plain_texts.read_wikitext(path), ("Coil", "Wire"), strict=True
        ):
            self.assertEqual(
                f"{title}\n\n \n For L \n{formulas} it is 5 .", text
            )

    def test_wikitext_without_empty_lines(self):
        lines = [x for x in WIKITEXT.splitlines() if x.strip()]
        path = write_file(self, "\n".join(lines))
        crow, elk = plain_texts.read_wikitext(path)
        self.assertIn("\n\nName\n\n", crow)
        self.assertEqual("Elk\n\n An elk .", elk)

    @parameterized.parameters(
        (" = = A = = \n", False), ("\n = A = = \n", False), ("= A", False)
    )
    def test_is_wikitext(self, text, expected):
        self.assertEqual(
            expected, plain_texts.is_wikitext(write_file(self, text))
        )

    def test_pieces_and_file(self):
        path = write_file(self, "\n\nOne.\nStill one.\n \nTwo.\r\n\r\n")
        self.assertEqual(
            ["One.\nStill one.", "Two."], list(plain_texts.read_pieces(path))
        )
        self.assertEqual(
            ["One.\nStill one.\n \nTwo."], list(plain_texts.read_file(path))
        )

    @parameterized.parameters(
        plain_texts.read_file,
        plain_texts.read_pieces,
        plain_texts.read_wikitext,
    )
    def test_long_texts_come_in_parts(self, read):
        # A line of 3 million characters, then short lines; none is blank.
        path = write_file(self, "ab " * 1_000_000 + "\nx\ny\n")
        texts = list(read(path))
        self.assertGreater(len(texts), 2)
        self.assertLess(max(map(len, texts)), 1_100_000)
        words = " ".join(texts).split()
        self.assertEqual(["ab"] * 1_000_000 + ["x", "y"], words)

    @parameterized.parameters(
        ("One. two\n\n", "Three\nfour. Five"),
        ("One. two\r\n\r\n", "Three\r\nfour. Five"),
        ("One. two\n", "Three. Four five"),
        ("One two. ", "Three four"),
        ("いち。", "に"),
        ("one ", "two"),
    )
    def test_places_of_cuts(self, first, second):
        """Splits at an empty line, or else after a line, sentence or word."""
        first, second = "x" * ((1 << 20) - 30) + first, second + "x" * 100
        self.assertEqual(
            [first, second], list(plain_texts.divide(first + second))
        )

    def test_texts_without_a_place_to_cut(self):
        text = "x" * (1 << 20)
        self.assertEqual([text], list(plain_texts.divide(text)))
        self.assertEqual([text, "xx"], list(plain_texts.divide(text + "xx")))
        self.assertEqual([""], list(plain_texts.divide("")))

    @parameterized.parameters(
        plain_texts.read_file,
        plain_texts.read_pieces,
        plain_texts.read_wikitext,
    )
    def test_many_blank_lines(self, read):
        path = write_file(self, "\n" * 300_000)
        self.assertEqual([], list(read(path)))
        path = write_file(self, "\n" * 300_000 + "One.")
        self.assertEqual(["One."], list(read(path)))


if __name__ == "__main__":
    tf.test.main()
