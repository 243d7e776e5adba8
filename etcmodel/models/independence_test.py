"""Tests that a text's output depends neither on padding nor on other texts.

Each text of a random structure is encoded twice: alone and without padding, and
in a batch with other texts, rows of padding and random tokens as padding.
"""

import contextlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import etc_features
from etcmodel.models import EtcConfig
from etcmodel.models.etc import structured_etc_model as encoder_lib
from etcmodel.ops.attention import dispatch
from etcmodel.ops.attention import streaming
from testing import small_read_twice

VOCAB, TYPES, HIDDEN = 20, 8, 8


def _sizes(rng, max_size):
    """Draws each unit's number of tokens."""
    return rng.integers(1, max_size + 1, size=rng.integers(1, 4))


def _make_sentences(rng):
    """Returns a text of some sentences."""
    sizes = _sizes(rng, 5)
    long, global_ = int(sum(sizes)), len(sizes)
    return {
        "long_token_ids": rng.integers(1, VOCAB, long),
        "long_breakpoints": np.eye(long, dtype=int)[-1],
        "sentence_ids": np.repeat(np.arange(global_), sizes),
        "global_token_ids": rng.integers(1, VOCAB, global_),
        "global_breakpoints": np.eye(global_, dtype=int)[-1],
    }


def _make_paragraphs(rng):
    """Returns candidates, a question, and paragraphs of sentences."""
    num_candidates, question = rng.integers(1, 4, size=2)
    # The type of each global token, and whether a unit ends with it.
    global_ = [(6, i == num_candidates - 1) for i in range(num_candidates)]
    # For each long token: type, sentence, paragraph, whether a unit ends.
    long = []
    for i in range(question):
        long.append((3, len(global_), -1, i == question - 1))
        global_.append((5, i == question - 1))
    for _ in range(rng.integers(1, 4)):
        paragraph, sizes = len(global_), _sizes(rng, 4)
        global_.append((7, False))
        for i, size in enumerate(sizes):
            is_last = i == len(sizes) - 1
            for j in range(size):
                is_end = is_last and j == size - 1
                long.append((1, len(global_), paragraph, is_end))
            global_.append((1, is_last))
    types, sentences, paragraphs, ends = np.transpose(long).astype(int)
    global_types, global_ends = np.transpose(global_).astype(int)
    return {
        "long_token_ids": rng.integers(1, VOCAB, len(long)),
        "long_token_type_ids": types,
        "long_sentence_ids": sentences,
        "long_paragraph_ids": paragraphs,
        "long_paragraph_breakpoints": ends,
        "l2g_linked_ids": rng.integers(-1, num_candidates, len(long)),
        "global_token_ids": rng.integers(1, VOCAB, len(global_)),
        "global_token_type_ids": global_types,
        "global_paragraph_breakpoints": global_ends,
    }


def _pack(first, second):
    """Packs two texts of sentences into one row."""
    second = dict(second)
    second["sentence_ids"] = second["sentence_ids"] + len(
        first["global_token_ids"]
    )
    return {name: np.concatenate([first[name], second[name]]) for name in first}


def _fill_up(texts, rng):
    """Batches texts with a row of padding, and pads all texts."""
    empty = {name: x[:0] for name, x in texts[0].items()}
    batch = {}
    for name in texts[0]:
        rows = [text[name] for text in (*texts, empty)]
        length = 3 + max(map(len, rows))
        if name.endswith("token_ids"):
            padding = rng.integers(VOCAB, size=[len(rows), length])
        elif name.endswith("type_ids"):
            padding = rng.integers(TYPES, size=[len(rows), length])
        else:
            value = etc_features.FEATURES.get(name, 0)
            padding = np.full([len(rows), length], value)
        for row, values in zip(padding, rows, strict=True):
            row[: len(values)] = values
        batch[name] = padding
    return batch


@contextlib.contextmanager
def _implementation(name):
    """Sets the attention implementation, with chunks as small as possible."""
    with (
        mock.patch.object(dispatch, "choose_implementation", lambda *_: name),
        mock.patch.object(streaming, "CHUNK_ELEMENTS", 256),
    ):
        yield


class EncoderTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("full", _make_sentences, dict(use_hard_g2l_mask=True), {}),
        ("streaming", _make_sentences, dict(use_hard_l2g_mask=True), {}),
        ("sparse", _make_sentences, {}, {}),
        ("full", _make_paragraphs, {}, dict(flat_sequence=True)),
        (
            "sparse",
            _make_paragraphs,
            dict(use_hard_g2l_mask=True),
            dict(ignore_hard_g2l_types=(7,)),
        ),
        (
            "streaming",
            _make_paragraphs,
            dict(use_hard_g2l_mask=True, use_hard_l2g_mask=True),
            dict(ignore_hard_g2l_types=(6, 7), ignore_hard_l2g_types=(3,)),
        ),
        (
            "streaming",
            _make_paragraphs,
            dict(relative_pos_max_distance=0, relative_vocab_size=None),
            dict(use_links=False),
        ),
    )
    def test_texts(self, implementation, make_text, config, options):
        structure = make_text.__name__.removeprefix("_make_")
        sizes = dict(
            vocab_size=VOCAB,
            hidden_size=HIDDEN,
            intermediate_size=8,
            local_radius=2,
            # With large weights, everything that a token sees matters.
            initializer_range=0.5,
        )
        encoder = encoder_lib.StructuredEtcModel(
            EtcConfig.from_preset("tiny", **sizes | config),
            structure,
            dtype="float64",
            **options,
        )
        rng = np.random.default_rng(0)
        texts = [make_text(rng) for _ in range(3)]
        with _implementation(implementation):
            alone = [
                encoder({name: x[None] for name, x in text.items()})
                for text in texts
            ]
            if structure == "sentences":
                # The last two texts share a row.
                texts[1:] = [_pack(*texts[1:])]
                alone[1:] = [
                    [tf.concat(x, axis=1) for x in zip(*alone[1:], strict=True)]
                ]
            together = encoder(_fill_up(texts, rng))
        for i, outputs in enumerate(alone):
            for expected, output in zip(outputs, together, strict=True):
                self.assertAllClose(
                    expected[0], output[i, : expected.shape[1]], 1e-9, 1e-9
                )
        for output in together:
            self.assertTrue(np.all(np.isfinite(output)))


class ReadTwiceTest(tf.test.TestCase, parameterized.TestCase):
    def _make_document(self, rng, number):
        """Returns segments of a document, each with padding at the end."""
        length, mentions = small_read_twice.LENGTH, 3
        segments = rng.integers(1, 5)
        sizes = rng.integers(2, length + 1, size=segments)
        ids = rng.integers(1, small_read_twice.VOCAB, size=[segments, length])
        ids[np.arange(length) >= sizes[:, None]] = 0
        ends = rng.integers(sizes[:, None], size=[segments, mentions])
        return dict(
            token_ids=ids,
            block_ids=np.full([segments], number),
            block_pos=np.arange(1, segments + 1),
            annotation_begins=np.maximum(ends - rng.integers(3), 0),
            annotation_ends=ends,
            # 0 is padding, 1 an unknown entity.
            annotation_labels=rng.integers(4, size=[segments, mentions]),
        )

    @parameterized.parameters(
        ("from_scratch", "cls", "none"),
        ("from_scratch", "entity", "linear"),
        ("new_layers", "text_block", "pos"),
        ("new_layers", "entity", "transformer"),
        ("cross_attend_once", "cls", "transformer"),
        ("cross_attend_once", "text_block", "linear"),
        ("paper", "entity", "none"),
        ("paper", "text_block", "none"),
        ("new_layers_cross_attention", "cls", "pos"),
        ("new_layers_cross_attention", "entity", "none"),
    )
    def test_documents(self, second_read, summary_mode, postprocessing):
        model = small_read_twice.make_model(
            **small_read_twice.SECOND_READS[second_read]
            | dict(
                summary_mode=summary_mode,
                text_block_extract_every_x=2,
                summary_postprocessing_type=postprocessing,
                summary_postprocessing_num_layers=1,
            )
        )
        rng = np.random.default_rng(3)
        # The row of padding holds random numbers.
        filling = self._make_document(rng, 9)
        filling = {name: x[:1] for name, x in filling.items()}
        filling |= dict(block_ids=np.array([0]), block_pos=np.array([0]))
        documents = [self._make_document(rng, i) for i in (5, 3, 7)]
        batch = {
            name: np.concatenate([x[name] for x in (*documents, filling)])
            for name in filling
        }
        order = rng.permutation(len(batch["block_ids"]))
        together = model(**{name: x[order] for name, x in batch.items()})
        for document in documents:
            (number,) = set(document["block_ids"])
            # Each segment is compared with itself in the larger batch.
            rows = np.flatnonzero(batch["block_ids"] == number)
            rows = np.argsort(order)[rows]
            alone = model(**document)
            is_token = document["token_ids"] != 0
            for name in ("first_read", "final_hidden_states"):
                expected = getattr(alone, name).numpy()[is_token]
                actual = getattr(together, name).numpy()[rows][is_token]
                self.assertAllClose(expected, actual, 1e-4, 1e-4)
            # The test would be trivial if segments ignored each other.
            if len(rows) > 1:
                one = model(**{name: x[:1] for name, x in document.items()})
                self.assertNotAllClose(
                    alone.final_hidden_states[0],
                    one.final_hidden_states[0],
                    1e-3,
                    1e-3,
                )


if __name__ == "__main__":
    tf.test.main()
