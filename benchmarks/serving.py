"""What a request costs: short texts in a model for long ones.

    python -m benchmarks.serving

A HotpotQA model with random weights is exported for the longest texts and for
each shorter length. Every SavedModel gets requests of texts of each length, one
record at a time, through `serving_default`: text processing, model, decoding.
Prints the time and size of each export, the milliseconds of a request, and how
many times longer that is than with the model for that very length.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import app
from absl import flags
from absl import logging

from etcmodel.models import EtcConfig
from etcmodel.serving import saved_model
from etcmodel.serving import signatures
from etcmodel.tasks import registry

_LENGTHS = flags.DEFINE_list(
    "lengths", ["256", "512", "1024", "4096"], "Long lengths, ascending."
)
_PRESET = flags.DEFINE_string("preset", "base", "The encoder.")
_LAYERS = flags.DEFINE_integer("layers", 4, "How many layers of it.")
_REPEATS = flags.DEFINE_integer("repeats", 7, "Requests of each kind.")

# A word is a token: texts have the lengths that they are to have.
_WORDS = [f"w{i}" for i in range(500)]
_SENTENCE = 25


def request(length: int) -> dict[str, tf.Tensor]:
    """A record that fills most of a length.

    Args:
        length: tokens.

    Returns:
        Inputs of `serving_default`.
    """
    rng = np.random.default_rng(length)
    number = (length - 6) // _SENTENCE
    sentences = [
        " ".join(rng.choice(_WORDS, _SENTENCE)).encode() for _ in range(number)
    ]
    # [1, 1, sentences]
    sentences = np.array(sentences, dtype=object).reshape(1, 1, -1)
    titles = np.array([[b"w1"]], dtype=object)
    return {
        "question": tf.constant([b"w1 w2 w3 w4"]),
        "titles": tf.constant(titles),
        "sentences": tf.constant(sentences),
    }


def _size(directory: str) -> float:
    """Megabytes of the graph; the weights are those of every model."""
    return os.path.getsize(os.path.join(directory, "saved_model.pb")) / 1e6


def main(_):
    """Measures and prints."""
    logging.set_verbosity(logging.ERROR)
    tf.get_logger().setLevel("ERROR")
    lengths = [int(x) for x in _LENGTHS.value]
    task = registry.get("hotpotqa")
    task_model = task.make_model()
    milliseconds = {}
    with tempfile.TemporaryDirectory() as root:
        vocab_file = os.path.join(root, "vocab.txt")
        with open(vocab_file, "w", encoding="utf-8") as stream:
            special = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
            special += [f"[unused{i}]" for i in range(110)]
            stream.writelines(f"{word}\n" for word in [*special, *_WORDS])
        for length in lengths:
            sizes = {
                "long_length": length,
                "global_length": max(length // 16, 64),
            }
            builder = task.make_preprocessor(
                task.make_preprocessing_config(sizes), vocab_file
            )
            config = EtcConfig.from_preset(
                _PRESET.value,
                num_hidden_layers=_LAYERS.value,
                vocab_size=int(builder.tokenizer.vocab_size),
            )
            model = task_model.build(config, **sizes)
            directory = os.path.join(root, str(length))
            start = time.perf_counter()
            module, requests = signatures.make_serving_module(
                model, builder, task_model
            )
            saved_model.export_saved_model(
                module,
                directory,
                model_name="hotpotqa",
                metadata={},
                warmup_inputs=requests,
            )
            print(
                f"exported for {length:5d} tokens in "
                f"{time.perf_counter() - start:.1f} s: graph of "
                f"{_size(directory):.1f} MB",
                flush=True,
            )
            answer = tf.saved_model.load(directory).signatures[
                signatures.SERVING_DEFAULT
            ]
            requests = {x: request(x) for x in lengths if x <= length}
            # The first calls after loading are slow, whatever they ask.
            for text, inputs in [*requests.items()] * 3:
                if int(answer(**inputs)["tokens_cut"][0]):
                    raise ValueError(f"{text} tokens are too many for {length}")
            for text, inputs in requests.items():
                seconds = []
                for _ in range(_REPEATS.value):
                    start = time.perf_counter()
                    answer(**inputs)
                    seconds.append(time.perf_counter() - start)
                milliseconds[length, text] = 1000 * float(np.median(seconds))
    print()
    for line in table(lengths, milliseconds):
        print(line)


def table(
    lengths: Sequence[int], milliseconds: Mapping[tuple[int, int], float]
) -> Iterator[str]:
    """The lines of a table with a row for each text, a column for each model.

    Args:
        lengths: of models and texts.
        milliseconds: of a model's length and a text's, that is not longer.

    Yields:
        A line; times have the ratio to the model of the text's own length.
    """
    yield "| text | " + " | ".join(f"model of {x}" for x in lengths) + " |"
    yield "| --- |" + " --- |" * len(lengths)
    for text in lengths:
        cells = [
            f"{milliseconds[x, text]:.0f} ms, "
            f"{milliseconds[x, text] / milliseconds[text, text]:.2f}x"
            if x >= text
            else ""
            for x in lengths
        ]
        yield f"| {text} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    app.run(main)
