"""Layouts by hand."""

from absl.testing import absltest

from benchmarks import layout_oracle
from benchmarks import task_oracles
from benchmarks.layout_oracle import END
from benchmarks.layout_oracle import Unit

NAMES = (
    "long_token_ids long_sentence_ids long_paragraph_ids global_token_ids "
    "long_paragraph_breakpoints global_paragraph_breakpoints"
).split()


class LayoutOracleTest(absltest.TestCase):
    def check(self, units, long_length, global_length, **expected):
        layout = layout_oracle.lay_out(units, NAMES, long_length, global_length)
        made = layout.padded(long_length, global_length)
        self.assertEqual(expected, {name: made[name] for name in expected})

    def test_what_does_not_fit_is_left_out(self):
        units = [
            Unit([], -1, 5, is_group=True),
            Unit([7, 8], 1, 1),
            Unit([9, 9], 1, 1),
            END,
            Unit([6], 1, 1, is_linked=False),
            END,
            Unit([6], 1, 1),
        ]
        self.check(
            *(units, 4, 3),
            long_token_ids=[7, 8, 9, 9],
            long_sentence_ids=[1, 1, 2, 2],
            long_paragraph_ids=[0, 0, 0, 0],
            global_token_ids=[5, 1, 1],
            long_paragraph_breakpoints=[0, 0, 0, 1],
            global_paragraph_breakpoints=[0, 0, 1],
        )
        self.check(
            *(units, 3, 5),
            long_token_ids=[7, 8, 6],
            long_sentence_ids=[1, 1, -1],
            global_token_ids=[5, 1, 1, 0, 0],
            long_paragraph_breakpoints=[0, 1, 1],
            global_paragraph_breakpoints=[0, 1, 1, 0, 0],
        )

    def test_the_last_global_token_is_shared(self):
        vocab = {"[CLS]": 2, "[SEP]": 3, "[unused0]": 4, "[unused2]": 5}
        pieces = [task_oracles.Piece(9, 7, candidate) for candidate in range(3)]
        units = task_oracles.nq_units([8], pieces, vocab)
        self.check(
            *(units, 7, 3),
            long_token_ids=[2, 8, 3, 9, 9, 9, 3],
            long_sentence_ids=[0, 1, -1, 2, 2, 2, -1],
            global_token_ids=[2, 5, 4],
        )

    def test_examples(self):
        values = {
            "long_token_ids": [3, 0, 4, 0],
            "words": [0, -1],
            "other": [-1, 0],
            "label": [1.5],
            "texts": ["é", ""],
            "none": [],
        }
        self.assertEqual(
            {
                "long_token_ids": [3, 0, 4],
                "words": [0],
                "other": [-1, 0],
                "label": [1.5],
                "texts": ["é".encode(), b""],
            },
            layout_oracle.from_example(layout_oracle.to_example(values)),
        )


if __name__ == "__main__":
    absltest.main()
