"""`export`: writes a trained model as a SavedModel, or for LiteRT or ONNX."""

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

--format=litert and --format=onnx write the encoder and the head for other
runtimes, which take one row of token ids and return logits. A SavedModel beside
them makes the token ids. The outputs are compared with TensorFlow's.
"""

EXAMPLE = """
python -m etcmodel export --model_dir=runs/1 --output_dir=saved_model
"""

COMMON_FLAGS = (
    "format",
    "weights",
    "overwrite",
)


Options = export.Options


def run(options: Options) -> None:
    """Exports a run and prints the path of the result."""
    result = export.export(options, Reporter())
    if result.measured:
        name = result.measured.main_metric
        for weights, metrics in result.measured.metrics.items():
            print(f"{name} with {weights} weights: {metrics[name]:.4g}")
    kind = {"litert": "LiteRT model", "onnx": "ONNX model"}.get(
        options.format, "SavedModel"
    )
    print(f"Wrote the {kind} of {result.checkpoint} to {result.saved_model}.")
