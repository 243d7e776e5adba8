import codecs
import gzip

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.narrativeqa import stories
from etcmodel.errors import UserError
from testing.helpers import real_data_path
from testing.helpers import write_file

_BOOK = """Licence of \u00c4sop

*** START OF THE PROJECT GUTENBERG EBOOK X ***

Once  upon
a time.

x
%s
Licence
"""


class StoriesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        "*** END OF THIS PROJECT GUTENBERG EBOOK X ***",
        "***END OF THE PROJECT GUTENBERG EBOOK X ***",
        "End of the Project Gutenberg Etext of X",
        "End of Project Gutenberg's X, by Y\n\n*** END OF THE PROJECT",
    )
    def test_book(self, end):
        for line_end in ("\n", "\r\n", "\r"):
            text = (_BOOK % end).replace("\n", line_end)
            self.assertEqual("Once upon a time.\n\nx", stories.clean(text))

    def test_marks_of_books(self):
        for text, expected in (
            # From the last start marker to the first end marker after it.
            (
                "This etext was prepared by A.\n*END*THE SMALL PRINT! FOR "
                "PUBLIC DOMAIN ETEXTS*Ver\na\nEnd of Project Gutenberg's B\nc\n"
                "*** END OF THIS PROJECT GUTENBERG EBOOK B ***",
                "a",
            ),
            ("no marks\n \n\nat all\n", "no marks\n\nat all"),
            ("a\n*** END OF THIS PROJECT GUTENBERG EBOOK B ***\nb", "a"),
            (
                "x\n *** START OF THE PROJECT GUTENBERG EBOOK B ***\na\n"
                "\t End of Project Gutenberg's B\nb",
                "a",
            ),
            ("x *** START OF THIS PROJECT GUTENBERG EBOOK", None),
            ("This text was prepared by A.\n\nx", None),
            ("A story of many words.\n\nThis etext prepared by A", None),
            ("A story.\nEnd of the Project Gutenberg EBook of B", "A story."),
            (" \n\n", ""),
        ):
            self.assertEqual(
                text if expected is None else expected, stories.clean(text)
            )

    def test_html(self):
        """Removes tags, hidden text, and the text around `<pre>`."""
        for text, expected in (
            (
                "<html><head><title>T</title><style>a {b}</style></head>"
                "<body><h1>A &amp; B</h1><p>c<b>d</b><br>e<script>1 < 2"
                "</script></body>",
                "T\n\nA & B\n\ncd e",
            ),
            (
                "<HTML>menu<pre>\n  INT. <b>HOUSE</b>\n\n  x</pre>y<pre>z"
                "</pre>end",
                "INT. HOUSE\n\nxyz",
            ),
            ("<pre>not closed", "not closed"),
            ("a < b and <c>", "a < b and <c>"),
            # A tag without an end, and unknown declarations.
            ("<html>a<p>b &lt; <i", "a\n\nb < <i"),
            ("<html>a<![if x]>b<![endif]>c<![<d>e", "abce"),
        ):
            self.assertEqual(expected, stories.clean(text))

    @parameterized.parameters(
        (b"\xef\xbb\xbf\xc3\x84", "\u00c4"),
        ("\u00c4".encode("utf-16"), "\u00c4"),
        (b"\xfe\xff\x00\xc4", "\u00c4"),
        (b"Character set encoding: ISO-8859-1\n\xc4", "\u00c4"),
        (b'<meta content="text/html; charset=windows-1252">\x80', "\u20ac"),
        # ISO-8859-1 is read as Windows-1252, as in browsers, for its quotes. A
        # file that is declared as ASCII may have any encoding.
        (b"charset=ISO-8859-1 don\x92t", "don\u2019t"),
        (b"Character set encoding: ASCII\n\xc3\x84", "\u00c4"),
        (b"Character set encoding: us-ascii\n\x93a", "\u201ca"),
        (b"Character set encoding: Klingon\n\xc3\x84", "\u00c4"),
        (b"\xc3\x84\xff", "\u00c4\ufffd"),
        (b"a\0b", "a b"),
        # UTF-16 and UTF-32, with and without a byte order mark.
        ("A \u00c4".encode("utf-32"), "A \u00c4"),
        (codecs.BOM_UTF32_BE + "A \u00c4".encode("utf-32-be"), "A \u00c4"),
        ("Jan, \u017d\u010f".encode("utf-16-le"), "Jan, \u017d\u010f"),
        ("Jan, \u017d\u010f".encode("utf-16-be"), "Jan, \u017d\u010f"),
        ("Jan, \u017d\u010f".encode("utf-32-le"), "Jan, \u017d\u010f"),
        ("Jan, \u017d\u010f".encode("utf-32-be"), "Jan, \u017d\u010f"),
        # Windows-1252 with an undefined byte. A declaration as UTF-8 takes
        # precedence over Windows-1252.
        (b"\x93J\xe4n\x94\x81", "\u201cJ\u00e4n\u201d\ufffd"),
        (b"charset=utf-8 J\xe4n", "J\ufffdn"),
        # Declared names that are not text encodings, and wrong declarations.
        (b"charset=hex \xc3\x84", "\u00c4"),
        (b'<meta charset="utf-16"> \xc3\x84', "\u00c4"),
    )
    def test_decode(self, content, expected):
        self.assertEqual(expected, stories.decode(content)[-len(expected) :])

    def test_load(self):
        for change in (bytes, gzip.compress):
            path = write_file(self, change(b"a\n\n b"))
            self.assertEqual("a\n\nb", stories.load(path))
        path = write_file(self, gzip.compress(b"a")[:-9], "a.content")
        with self.assertRaisesRegex(UserError, "a.content is cut off"):
            stories.load(path)

    def test_real_story(self):
        """The Time Machine is complete, and no other text is left."""
        name = "72ddeff1fe6bb9841d1c1da4b3031001bf6b1f58"
        text = stories.load(
            real_data_path(f"narrativeqa/stories/{name}.content")
        )
        self.assertStartsWith(text, "The Time Machine, by H. G. Wells [1898]")
        self.assertEndsWith(text, "lived on in the heart of man.")
        self.assertNotIn("Gutenberg", text)


if __name__ == "__main__":
    tf.test.main()
