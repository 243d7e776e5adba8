import types

from absl.testing import absltest

from etcmodel.errors import UserError
from etcmodel.pipeline import sizes
from etcmodel.tasks import registry


class SizesTest(absltest.TestCase):
    def _find(self, noted=None, **lengths):
        metadata = noted and {"preprocessing_config": noted}
        return sizes.find_sizes(
            registry.get("wikihop"),
            metadata,
            types.SimpleNamespace(**lengths),
        )

    def test_lengths_of_the_model(self):
        noted = dict.fromkeys(registry.get("wikihop").size_names(), 3)
        self.assertEqual(noted, self._find(noted))
        self.assertEqual(
            {**noted, "long_length": 8},
            self._find(noted, long_length=8, global_length=0),
        )
        self.assertEqual(
            {"long_length": 8, "global_length": 2},
            self._find(long_length=8, global_length=2),
        )

    def test_shorten(self):
        """Lengths are multiples of 8, and at most the model's."""
        lengths = {"long_length": 40, "global_length": 20}
        for longest, expected in (
            ({}, (40, 20)),
            ({"long_length": 16}, (16, 20)),
            ({"long_length": 17, "global_length": 1}, (24, 8)),
            ({"long_length": 39, "global_length": 33}, (40, 20)),
        ):
            found = sizes.shorten(lengths, longest)
            self.assertEqual(expected, tuple(found.values()))
        # Lengths of segments do not change.
        self.assertEqual(
            {"block_length": 9},
            sizes.shorten({"block_length": 9}, {"long_length": 3}),
        )

    def test_records_of_earlier_versions(self):
        """Accepts records without optional sizes; omits empty ones."""
        spec = registry.get("classify")
        noted = spec.stored_sizes(spec.make_preprocessing_config({}))
        self.assertNotIn("labels_as_json", noted)
        for more in ({}, {"labels_as_json": ["3"]}):
            metadata = {"preprocessing_config": {**noted, **more}}
            found = sizes.find_sizes(spec, metadata, types.SimpleNamespace())
            self.assertEqual({**noted, **more}, found)

    def test_inconsistent_sizes(self):
        noted = dict.fromkeys(registry.get("wikihop").size_names(), 3)
        for given, lengths, message in (
            (noted, {"long_length": 2}, "`long_length=3`"),
            (None, {"long_length": 2}, "task.model.global_length=N"),
            ({**noted, "x": 1}, {}, "has the sizes .*x, but wikihop needs"),
        ):
            with self.assertRaisesRegex(UserError, message):
                self._find(given, **lengths)


if __name__ == "__main__":
    absltest.main()
