"""Tests each source that docs/warm_starts.md lists as rejected.

warm_starts_test.py tests the supported sources.
"""

import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from safetensors import numpy as safetensors_numpy

from etcmodel.checkpoints import bert_files
from etcmodel.checkpoints import lifting
from etcmodel.models import EtcModel
from testing.small_berts import write_json
from testing.warm_starts import LINES
from testing.warm_starts import documented_sources
from testing.warm_starts import make_weights
from testing.warm_starts import rewrite
from testing.warm_starts import write

REFUSED = {}


def refuses(name, message):
    return lambda function: REFUSED.setdefault(name, (function, message))


@refuses("fewer rows than tokens", r"14 tokens, but .* has 12 rows")
def too_few_rows(folder):
    write(folder, make_weights(12))


@refuses(
    "LoRA and other adapters", r"base_layer.*PEFT's `merge_and_unload\(\)`"
)
def lora(folder):
    write(folder)
    name = "bert.encoder.layer.0.attention.self.query"
    rewrite(
        folder,
        lambda x: {
            f"{name}.weight": f"{name}.base_layer.weight",
            f"{name}.bias": f"{name}.lora_A.weight",
        }.get(x, x),
    )


@refuses("`pytorch_model.bin` alone", "pytorch_model.bin.*save_pretrained")
def pickled(folder):
    write(folder)
    os.rename(
        os.path.join(folder, "model.safetensors"),
        os.path.join(folder, "pytorch_model.bin"),
    )


@refuses("another file name that `--from` does not name", "Pass a file: .*fp16")
def variant(folder):
    write(folder)
    rewrite(folder, file="model.fp16.safetensors")


@refuses("quantized weights", "int8, expected float32.*without quantization")
def quantized(folder):
    write(folder)
    path = os.path.join(folder, "model.safetensors")
    tensors = safetensors_numpy.load_file(path)
    name = "bert.encoder.layer.0.output.dense.weight"
    tensors[name] = tensors[name].astype(np.int8)
    safetensors_numpy.save_file(tensors, path)


@refuses("other encoders: ALBERT, DeBERTa, BigBird, ...", "'deberta'.*relative")
def other_encoder(folder):
    write(folder, model_type="deberta")


@refuses("ELECTRA with narrower embeddings", "embedding_size is 4, expected 8")
def narrow_electra(folder):
    write(folder, model_type="electra", embedding_size=4)


@refuses(
    "weights in the encoder that BERT does not have",
    "distance_embedding.weight in the encoder",
)
def more_weights(folder):
    write(folder)
    name = "bert.encoder.layer.0.attention.self.distance_embedding.weight"
    rewrite(folder, lambda x: x.replace("bert.pooler.dense.bias", name))


@refuses("two encoders in one file", "several encoders.*'left.*'right")
def two_encoders(folder):
    write(folder)
    rewrite(
        folder,
        lambda x: x.replace(
            "bert.embeddings.pos", "right.bert.embeddings.pos"
        ).replace("bert.embeddings.word", "left.bert.embeddings.word"),
    )


@refuses(
    "words split with a dictionary (Japanese)", "BertJapaneseTokenizer, which"
)
def japanese(folder):
    write(folder)
    write_json(
        folder,
        "tokenizer_config.json",
        {"tokenizer_class": "BertJapaneseTokenizer"},
    )


@refuses("no recognizable special tokens", r"lacks \[CLS\], \[SEP\]")
def no_special_tokens(folder):
    lines = [x.replace("[CLS]", "x").replace("[SEP]", "y") for x in LINES]
    write(folder, lines=lines)


@refuses(
    "a directory that does not exist", "Nothing is downloaded.*hf download"
)
def no_directory(folder):
    return os.path.join(folder, "bert-base-uncased")


class RefusedTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.get_temp_dir(), "source")
        os.mkdir(self.folder)

    @parameterized.named_parameters(
        (f.__name__, name) for name, (f, _) in REFUSED.items()
    )
    def test_refuses(self, name):
        write_source, message = REFUSED[name]
        path = write_source(self.folder) or self.folder
        with self.assertRaisesRegex((ValueError, FileNotFoundError), message):
            bert = bert_files.read_bert(path)
            config = lifting.lifted_config(bert, preset="tiny")
            lifting.lift(EtcModel(config), bert)

    def test_the_page_has_a_line_for_each_case(self):
        _, refused = documented_sources()
        self.assertCountEqual(REFUSED, refused)


if __name__ == "__main__":
    tf.test.main()
