"""`export`: writes a trained model as a SavedModel that takes raw text."""

from etcmodel.engine import export
from etcmodel.engine.progress import Reporter

DESCRIPTION = """
Writes a SavedModel for TensorFlow Serving, or for any program with TensorFlow
and tensorflow-text. Using it does not need this package. README.md is its model
card, for the Hugging Face hub. Its signatures:

  serving_default      raw strings -> decoded answers
  serialized_examples  records as `preprocess` writes them -> answers
  features             integers -> logits

Batches are padded with empty strings. Warm-up requests are included.
"""

EXAMPLE = """
python -m etcmodel export --model_dir=runs/1 --output_dir=saved_model
"""


Options = export.Options


def run(options: Options) -> None:
    """Exports a run and prints the path of the SavedModel."""
    result = export.export(options, Reporter())
    if result.measured:
        name = result.measured.main_metric
        for weights, metrics in result.measured.metrics.items():
            print(f"{name} with {weights} weights: {metrics[name]:.4g}")
    print(
        f"Wrote the SavedModel of {result.checkpoint} to {result.saved_model}."
    )
