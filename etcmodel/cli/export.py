"""`export`: a trained model becomes a SavedModel that takes raw text."""

from etcmodel.engine import export
from etcmodel.engine.progress import Reporter

DESCRIPTION = """
Writes a SavedModel for TensorFlow Serving or any program with TensorFlow and
tensorflow-text; this package is not needed to use it. Its signatures:

  serving_default      raw strings in, decoded answers out
  serialized_examples  records as `preprocess` writes them in, answers out
  features             integers in, logits out

Batches are padded with empty strings. Warm-up requests are included.
"""

EXAMPLE = """
python -m etcmodel export --model_dir=runs/1 --output_dir=saved_model
"""


Options = export.Options


def run(options: Options) -> None:
    """Exports a run and prints where the SavedModel is."""
    result = export.export(options, Reporter())
    print(
        f"Wrote the SavedModel of {result.checkpoint} to {result.saved_model}."
    )
