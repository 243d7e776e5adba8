import dataclasses
import unittest

from etcmodel.tasks.documents import document_options
from etcmodel.tasks.documents.document_options import (
    DocumentPreprocessingConfig,
)


class WithoutBlocks(DocumentPreprocessingConfig):
    HAS_BLOCKS = False


class DocumentOptionsTest(unittest.TestCase):
    def test_units(self):
        for made, units in (
            (DocumentPreprocessingConfig, ("auto", *document_options.UNITS)),
            (WithoutBlocks, ("auto", "sentences", "texts", "paragraphs")),
        ):
            for name in units:
                self.assertEqual(name, made(units=name).units)
            with self.assertRaisesRegex(
                ValueError, f"'words', expected one of {', '.join(units)}\\."
            ):
                made(units="words")
        with self.assertRaisesRegex(ValueError, "'blocks', expected"):
            WithoutBlocks(units="blocks")

    def test_reading_options_are_fields(self):
        fields = dataclasses.fields(DocumentPreprocessingConfig)
        names = {x.name for x in fields}
        self.assertLess({*document_options.READING}, names)
        # None by default, since each dataset has its own default fields.
        for field in fields:
            if field.name in document_options.READING:
                self.assertIsNone(field.default)


if __name__ == "__main__":
    unittest.main()
