r"""Measures time and memory of a served request about a whole book.

A model of ReadTwice with random weights is exported, and gets requests with a
story through `serving_default`: text processing, mentions, both reads and
decoding. It runs in a new process, which has loaded nothing else.

    python -m benchmarks.read_twice_request --story=72dd.content \
        --vocab_file=vocab.txt --presets=tiny,base

prints the tokens and segments of the story, the seconds of the first request,
the median seconds of later requests, and the peak memory of the process in
megabytes, with the model and TensorFlow.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator

from benchmarks import measure
from benchmarks import program
from etcmodel.datasets.narrativeqa import stories
from etcmodel.tasks import registry

# Preset -> sizes of segments, if the default ones are too long for it.
_LENGTHS = {"tiny": {"block_length": 64, "block_overlap": 16}}


def ask(directory: str, story: str, repeats: int) -> dict[str, float]:
    """Sends requests to a SavedModel; must run in a new process."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  Registers operations of the graph.

    answer = tf.saved_model.load(directory).signatures["serving_default"]
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        answer(
            question=tf.constant(["Who is he?"]), document=tf.constant([story])
        )
        seconds.append(time.perf_counter() - start)
    return {
        "first_s": seconds[0],
        "median_s": statistics.median(seconds[1:] or seconds),
        "peak_mb": measure.status_bytes("VmHWM") / 1e6,
    }


def export(preset: str, vocab_file: str, story: str, directory: str) -> dict:
    """Exports a model with random weights; must run in a new process.

    Returns the number of tokens and segments of the story.
    """
    import tensorflow as tf

    from etcmodel.models import ReadTwiceConfig
    from etcmodel.serving import saved_model as export_lib
    from etcmodel.serving import signatures

    spec = registry.get("read_twice_narrativeqa")
    sizes = spec.make_preprocessing_config(
        {"max_question_length": 32, **_LENGTHS.get(preset, {})}
    )
    builder = spec.make_preprocessor(sizes, vocab_file)
    task_model = spec.make_model()
    config = ReadTwiceConfig.from_preset(
        preset,
        vocab_size=int(builder.tokenizer.vocab_size),
        cross_attention_top_k=100,
    )
    module, requests = signatures.make_serving_module(
        task_model.build(config), builder, task_model
    )
    export_lib.export_saved_model(
        module,
        directory,
        model_name="read_twice",
        metadata={},
        warmup_inputs=requests,
    )
    made = builder(tf.constant(["Who is he?"]), tf.constant([story]))
    # Tokens in the overlap of two segments count once.
    starts = {*made.token_starts.numpy().ravel().tolist()} - {-1}
    return {"tokens": len(starts), "segments": len(made.documents)}


def _measure(values) -> Iterator[program.Line]:
    story = stories.load(values.story)
    for preset in values.presets:
        with tempfile.TemporaryDirectory() as root:
            directory = os.path.join(root, "saved_model")
            sizes = measure.in_fresh_process(
                export, preset, values.vocab_file, story, directory
            )
            times = measure.in_fresh_process(
                ask, directory, story, values.repeats
            )
        yield {"preset": preset, **sizes, **times}


PROGRAM = program.load("read_twice_request", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
