"""`preprocess`: converts data files to TFRecords of features."""

from etcmodel.engine import preprocess
from etcmodel.engine.progress import Reporter

DESCRIPTION = """
Reads data files in the format of the task, converts every record to the
integers that the model reads (long tokens, global tokens, and which belong
together), and writes them as gzipped TFRecord files. Also writes

  stats.json      numbers of records read, written, left out and dropped, and of
                  truncated parts
  preprocessing_config.json
                  the sizes, and for each file the numbers of examples and bytes
                  and the length of the longest input; `train`, `evaluate` and
                  `export` read it
  vocab.txt       a copy of the vocabulary (vocab.model for SentencePiece)
  tokenizer_config.json   the settings of the WordPiece tokenizer

The output directory appears only when all files are complete.

Each task adds flags, such as the sizes of its features.
`preprocess --task=TASK --helpfull` shows them.
"""

EXAMPLE = """
python -m etcmodel preprocess --task=classify --input=tickets.csv \\
    --text_field=body --vocab_file=vocab.txt --output_dir=data/train
"""

COMMON_FLAGS = (
    "vocab_file",
    "split",
    "validation_fraction",
    "long_length",
    "global_length",
)


Options = preprocess.Options
TASK_FLAGS = True
# With --runner, unknown flags become `beam_options`.
PASSES_ON = ("runner", "beam_options")


def run(options: Options) -> None:
    """Preprocesses records and prints statistics."""
    result = preprocess.preprocess(options, Reporter())
    for split in result.splits.values():
        if split.skipped:
            print(split.skipped)
        print(
            f"Wrote {split.num_written} of {split.num_read} records to "
            f"{split.directory}."
        )
        for name, count in sorted(split.totals.items()):
            print(f"  {count:10d}  {name.replace('_', ' ')}")
        for name, value in split.summary.items():
            print(f"  {value:10.2f}  {name.replace('_', ' ')}")
        for note in split.notes:
            print(note)
    if result.tokenizer:
        print(result.tokenizer)
