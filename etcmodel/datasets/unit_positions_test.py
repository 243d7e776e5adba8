from absl.testing import absltest
from absl.testing import parameterized

from etcmodel.datasets import unit_positions
from etcmodel.datasets.unit_positions import Selected
from etcmodel.datasets.unit_positions import Unit
from etcmodel.errors import RecordError
from etcmodel.readers.sectioned import Fields
from etcmodel.readers.sectioned import Row
from etcmodel.readers.sectioned import Source

# Paragraphs 0 and 1 are in the section "Jan", 2 and 3 in the other one.
_SECTIONS = [
    {"title": "Jan", "paragraphs": [["Jan paints.", "He  sings."], []]},
    {"title": "Caf\u00e9", "paragraphs": [["A city."], ["B.", "C.", "B."]]},
]
_STRING = "Jan paints. He sings.\n\nBrno is\na city. He sings."
# Two paragraphs of two texts.
_PAIRS = [["a", "b"], ["c", "d"]]


def _read(document, value, units="texts"):
    row = Row(
        {"text": document, "selected": value}, Source("data", 4), Fields()
    )
    return unit_positions.read_selected(row, "selected", row.document(), units)


class ReadTest(parameterized.TestCase):
    @parameterized.parameters(
        (_SECTIONS, [], []),
        (_SECTIONS, [[3, 1], [0, 0], [3, 1]], [(0, 0), (3, 1)]),
        (_SECTIONS, [[3, -1]], [(3, -1)]),
        # The index counts the texts of the whole section. Titles are
        # normalized.
        (_SECTIONS, [["Jan", 1], ["Cafe\u0301 ", 3]], [(0, 1), (3, 2)]),
        (_SECTIONS, ["He sings.", "B."], [(0, 1), (3, 0), (3, 2)]),
        (_SECTIONS, "A city.", [(2, 0)]),
        (
            _SECTIONS,
            [[True, False], [], [False], [True, False, True]],
            [(0, 0), (3, 0), (3, 2)],
        ),
        (_SECTIONS, [[0, 1], [], [1], [0, 0, 0]], [(0, 1), (2, 0)]),
        # Flags that are not valid positions, and flags that select the same
        # texts when read as positions.
        ([["a", "b"]], [[1, 0]], [(0, 0)]),
        (_PAIRS, [[0, 1], [1, 0]], [(0, 1), (1, 0)]),
    )
    def test_texts(self, document, value, expected):
        self.assertEqual((tuple(expected), ()), _read(document, value))

    def test_texts_are_not_sentences(self):
        """A text may have several sentences, so their indices differ."""
        for value in ([[3, 1]], ["B."], [[0, 1], [], [1], [0, 0, 0]]):
            with self.assertRaisesRegex(
                RecordError, "field 'selected': a paragraph is a list .*`units`"
            ):
                _read(_SECTIONS, value, "sentences")
        # These values contain no text indices.
        for value in ([], [[3, -1]]):
            self.assertEqual(
                _read(_SECTIONS, value), _read(_SECTIONS, value, "sentences")
            )
        self.assertEqual(
            ((), ("sings",)), _read(_STRING, ["sings"], "sentences")
        )

    @parameterized.parameters(
        (_SECTIONS, [3, 0], [0, 3]),
        (_SECTIONS, [[3, 1], [3, 0], [2, -1]], [2, 3]),
        (_SECTIONS, [["Jan", 0]], [0]),
        (_SECTIONS, [True, False, False, True], [0, 3]),
        (_SECTIONS, [[1, 1], [], [0], [0, 0, 1]], [0, 3]),
        (_SECTIONS, ["He sings.", "C. B."], [0, 3]),
        (_STRING, ["He sings."], [0, 1]),
        (_STRING, ["Brno is a city."], [1]),
        # A text that equals the value takes precedence; white space is ignored.
        ("Conclusion\n\nThe Conclusion section follows.", ["Conclusion"], [0]),
        ("The Conclusion follows.\n\nThe Conclusion", ["The\tConclusion"], [1]),
        (
            [["We won. So."], ["Eve.", "We won."], ["We won."]],
            "We won.",
            [1, 2],
        ),
        # Whole words take precedence.
        ("A party.\n\nThe art of it.\n\nArtists.", ["art"], [1]),
        ("A party.\n\nArtists.", ["art"], [0]),
    )
    def test_paragraphs(self, document, value, expected):
        self.assertEqual(
            (tuple((x, -1) for x in expected), ()),
            _read(document, value, "paragraphs"),
        )

    def test_texts_of_paragraphs_that_are_not_split(self):
        self.assertEqual(
            ((), ("Brno is a city.", "sings")),
            _read(_STRING, ["Brno is a city.", "sings", "sings"]),
        )
        self.assertEqual(((), ()), _read(_STRING, []))
        self.assertEqual((((1, -1),), ()), _read(_STRING, [[1, -1]]))

    @parameterized.parameters(
        (_SECTIONS, 5, "': got 5, expected a list of positions"),
        (_SECTIONS, [5, "a"], "': got .*, a list of 2, expected a list of pos"),
        (_SECTIONS, [[0, 1, 2]], "': got .*, expected a list of positions"),
        (_SECTIONS, [[0, 1.5]], "': got .*, expected a list of positions"),
        (_SECTIONS, [[4, 0]], r"\[0\]': got 4, expected .* the 4 paragraphs"),
        (_SECTIONS, [[-1, 0]], r"\[0\]': got -1, expected the index"),
        (_SECTIONS, [[0, 0], [3, 3]], r"\[1\]': got 3, expected .* of 3 texts"),
        (
            _SECTIONS,
            [["Eve", 0]],
            r"\[0\]\[0\]': got 'Eve', expected the title",
        ),
        (
            _SECTIONS,
            [["Jan", 2]],
            r"\[0\]\[1\]': got 2, expected .* of 2 texts",
        ),
        (_SECTIONS, ["He"], r"\[0\]': got 'He', expected one of the texts"),
        (_SECTIONS, [" "], r"\[0\]': it is empty"),
        (
            _SECTIONS,
            [True, False],
            "': got .*for each paragraph, a list of true and",
        ),
        (_SECTIONS, [0], "': got .*for paragraphs, set units=paragraphs"),
        (
            _PAIRS,
            [[0, 0], [1, 1]],
            "': got .*0 and 1 can be flags",
        ),
        (_STRING, [[0, 0]], r"\[0\]': got 0, expected texts, since ind"),
        (_STRING, ["Brno was"], r"\[0\]': got 'Brno was', expected a part"),
    )
    def test_errors(self, document, value, message):
        with self.assertRaisesRegex(
            RecordError, f"^data, record 4 .id '4'., field 'selected{message}"
        ):
            _read(document, value)

    @parameterized.parameters(
        ([True, False], "for each of the document's 4 paragraphs"),
        ([0, 1, 0, 1], "different indices of paragraphs, or true or"),
        ([4], r"\[0\]': got 4"),
        ([[0, 2]], r"\[0\]': got 2, expected .* of 2 texts"),
        (["He jumps."], "got 'He jumps.', expected a part"),
    )
    def test_errors_of_paragraphs(self, value, message):
        with self.assertRaisesRegex(RecordError, message):
            _read(_SECTIONS, value, "paragraphs")

    def test_unknown_units(self):
        unit_positions.check_units("sentences")
        with self.assertRaisesRegex(ValueError, "units is 'words'"):
            unit_positions.check_units("words")


class FindUnitsTest(parameterized.TestCase):
    UNITS = [
        (0, 0, "Jan was born."),
        (0, 1, "He\npaints a lot."),
        (2, 0, "He sings."),
        (2, 1, "He was born."),
        (2, 2, "He sings."),
    ]

    @parameterized.parameters(
        (["He paints a lot."], {(0, 1)}, 0),
        # All units that equal the text are selected.
        (["He sings."], {(2, 0), (2, 2)}, 0),
        # A whole unit and a small part of the next.
        (["Jan was born. He"], {(0, 0)}, 0),
        (["Jan was born. He paints a"], {(0, 0), (0, 1)}, 0),
        # A phrase within one unit, and one across two.
        (["paints"], {(0, 1)}, 0),
        (["born. He"], {(0, 0), (2, 1)}, 0),
        # Whole words take precedence over parts of words.
        (["a"], {(0, 1)}, 0),
        (["as born. He"], {(0, 0), (2, 1)}, 0),
        (["sing"], {(2, 0), (2, 2)}, 0),
        # Texts that cross paragraphs, are missing, or are blank are not found.
        (["a lot. He sings.", "Eve", " "], set(), 3),
    )
    def test_finds(self, texts, expected, missing):
        self.assertEqual(
            (expected, missing), unit_positions.find_units(texts, self.UNITS)
        )

    @parameterized.parameters(
        ("We won.", [["The mayor: We won.", "We won.", "We won. So."]], [1]),
        ("We won.", [["The mayor: We won."], ["We won."]], [1]),
        ("没有。", [["我没有。", "没有。", "他没有。"]], [1]),
        ("哈哈。", [["哈哈哈。", "哈。", "哈哈。"]], [2]),
        # White space is ignored.
        ("We  won.", [["So we\nwon.", "We\nwon."]], [1]),
        # Adjacent units that equal the text together.
        (
            "We won. So.",
            [["Eve: We won.", "So."], ["We won.", "So.", "Eve: We won."]],
            [2, 3],
        ),
        # No unit equals the text.
        ("won.", [["The mayor: We won.", "We won"]], [0]),
        ("没有", [["我没有。", "没有了。"]], [0, 1]),
    )
    def test_units_that_equal_the_text(self, text, paragraphs, expected):
        units = [
            (i, j, unit)
            for i, texts in enumerate(paragraphs)
            for j, unit in enumerate(texts)
        ]
        self.assertEqual(
            ({units[i][:2] for i in expected}, 0),
            unit_positions.find_units([text], units),
        )

    @parameterized.parameters(
        (Selected(((0, 1), (9, 0))), {(0, 1), (9, 0)}),
        (Selected(((2, -1), (9, -1))), {(2, 0), (2, 1), (2, 2), (9, -1)}),
        (Selected((), ("paints", "Eve")), {(0, 1), (-1, 0)}),
    )
    def test_right_positions(self, selected, expected):
        units = [Unit(*x[:2], content=x[2]) for x in self.UNITS]
        self.assertEqual(
            expected, unit_positions.right_positions(selected, units)
        )

    def test_whole_paragraphs(self):
        selected = Selected(((1, -1),))
        units = [Unit(0, -1), Unit(1, -1)]
        self.assertEqual(
            {(1, -1)}, unit_positions.right_positions(selected, units)
        )


if __name__ == "__main__":
    absltest.main()
