from absl.testing import absltest
from absl.testing import parameterized

from etcmodel.datasets.question_answering.places import AnswerFinder
from etcmodel.datasets.question_answering.places import Place
from etcmodel.readers.sectioned import Fields
from etcmodel.readers.sectioned import Row
from etcmodel.readers.sectioned import Source

#          0         1          2         3
#          0123456789012345678 90 123456789012345678901
_STRING = " Jan Nov\u00e1k sings.\n\nJan &amp; Eve like Jan."
# "Jan sings. He", "", "Jan" begin at 0, 15 and 17.
_LISTS = [["Jan sings.", "He"], [], ["Jan"]]


class AnswerFinderTest(parameterized.TestCase):
    def _find(self, document, answer, start):
        row = Row({"text": document}, Source(), Fields())
        finder = AnswerFinder(row.document())
        place = finder.find(answer, start)
        return place, finder.num_moved, finder.num_missing

    @parameterized.parameters(
        (_STRING, "Jan", 1, (0, 0, 0, 3)),
        (_STRING, " Jan ", 0, (0, 0, 0, 3)),
        (_STRING, "Jan", 19, (1, 0, 0, 3)),
        (_STRING, "sings.", 11, (0, 0, 10, 16)),
        (_STRING, "Jan.", 38, (1, 0, 19, 23)),
        (_LISTS, "Jan", 0, (0, 0, 0, 3)),
        (_LISTS, "He", 11, (0, 1, 0, 2)),
        (_LISTS, "Jan", 17, (2, 0, 0, 3)),
    )
    def test_at_the_offset(self, document, answer, start, expected):
        self.assertEqual(
            (Place(*expected), 0, 0), self._find(document, answer, start)
        )

    @parameterized.parameters(
        # The nearest occurrence counts.
        (_STRING, "Jan", 0, (0, 0, 0, 3)),
        (_STRING, "Jan", 12, (1, 0, 0, 3)),
        (_STRING, "Jan", 500, (1, 0, 19, 22)),
        (_LISTS, "Jan", 12, (2, 0, 0, 3)),
        # Normal forms differ: the place refers to the document's text.
        (_STRING, "Jan Nova\u0301k", 1, (0, 0, 0, 9)),
        (_STRING, "Jan & Eve", 19, (1, 0, 0, 13)),
        (_STRING, "jan novák  SINGS", 7, (0, 0, 0, 15)),
    )
    def test_moved(self, document, answer, start, expected):
        self.assertEqual(
            (Place(*expected), 1, 0), self._find(document, answer, start)
        )

    @parameterized.parameters(
        (_STRING, "Adam", 1, 1),
        (_STRING, "sings. Jan", 12, 1),
        (_LISTS, "sings. He", 4, 1),
        (_STRING, "Adam", None, 1),
        # The answer occurs, but no offset is given.
        (_STRING, "Jan", None, 0),
        (_STRING, "Jan & Eve", None, 0),
    )
    def test_no_place(self, document, answer, start, missing):
        self.assertEqual(
            (None, 0, missing), self._find(document, answer, start)
        )


if __name__ == "__main__":
    absltest.main()
