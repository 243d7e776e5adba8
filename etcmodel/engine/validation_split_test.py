import collections
import io

from absl.testing import absltest

from etcmodel.datasets import classification
from etcmodel.engine import validation_split
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError


class ValidationSplitTest(absltest.TestCase):
    def test_shares_of_labels(self):
        """Draws a fifth of each label; a single record stays in training."""
        out = io.StringIO()
        reporter = Reporter("lines", out)
        labels = {str(i): "aaab"[i % 4] for i in range(40)} | {"x": "c"}

        def choose(fraction, seed, labels=labels):
            records = [
                classification.ClassificationRecord(id=x, sections=(), label=y)
                for x, y in labels.items()
            ]
            return validation_split.validation_ids(
                records, classification, fraction, seed, reporter
            )

        chosen = [choose(0.2, seed) for seed in range(9)]
        for ids in chosen:
            self.assertEqual(
                {"a": 6, "b": 2}, collections.Counter(map(labels.get, ids))
            )
        self.assertGreater(len(set(map(frozenset, chosen))), 5)
        # One validation record is too few for two labels. Numbers and several
        # labels per record have no strata.
        self.assertLen(choose(0.03, 0), 1)
        self.assertIn(
            "1 of 40 records are too few for 2 labels", out.getvalue()
        )
        numbers = dict(zip(labels, range(41), strict=True))
        self.assertLen(choose(0.2, 0, numbers), 8)
        several = dict.fromkeys(labels, ("a", "b"))
        self.assertLen(choose(0.2, 0, several), 8)

    def test_parts_are_disjoint(self):
        records = [
            classification.ClassificationRecord(id=str(i), sections=())
            for i in range(10)
        ]
        keep = validation_split.choose(
            records, classification, 0.3, 0, Reporter("quiet")
        )
        train = [x.id for x in records if keep["train"](x)]
        dev = [x.id for x in records if keep["dev"](x)]
        self.assertLen(dev, 3)
        self.assertCountEqual([x.id for x in records], [*train, *dev])
        with self.assertRaisesRegex(UserError, "`validation_fraction=0.01`"):
            validation_split.choose(
                records, classification, 0.01, 0, Reporter("quiet")
            )


if __name__ == "__main__":
    absltest.main()
