"""Compares token ids with those of the tokenizers library, on real text."""

import gzip
import json
import os
import pathlib
import tempfile

import tensorflow as tf
import tokenizers as library
from absl.testing import parameterized

from etcmodel.feature_utils.text import tokenizers
from testing.helpers import real_data_path

_LANGUAGES = ("ar", "de", "el", "es", "hi", "ro", "ru", "th", "tr", "vi", "zh")
_TRAINED = {
    # Vocabulary -> whether it is lower-cased, and whether accents are stripped.
    "cased": (False, None),
    "with_accents": (True, False),
}


def _read_json(name):
    return json.loads(pathlib.Path(real_data_path(name)).read_text("utf-8"))


def _nq_tokens():
    """Returns the words of each page."""
    for number in (0, 1):
        path = real_data_path(f"nq/nq-train-0{number}.jsonl.gz")
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            for line in stream:
                yield [
                    token["token"]
                    for token in json.loads(line)["document_tokens"]
                    if not token["html_token"]
                ]


def _read_texts():
    """Returns texts of each language and of each task."""
    texts = {
        language: pathlib.Path(real_data_path(f"languages/{language}.txt"))
        .read_text("utf-8")
        .strip("\n")
        .split("\n")
        for language in _LANGUAGES
    }
    texts["hotpotqa"] = [
        text
        for name in ("train_200", "dev_95")
        for record in _read_json(f"hotpotqa/{name}.json")
        for text in [
            record["question"],
            *(" ".join(sentences) for _, sentences in record["context"]),
        ]
    ]
    texts["nq"] = [
        " ".join(words[i : i + 200])
        for words in _nq_tokens()
        for i in range(0, len(words), 200)
    ]
    texts["squad"] = [
        paragraph["context"]
        for article in _read_json("squad/train.json")["data"]
        for paragraph in article["paragraphs"]
    ]
    texts["wikihop"] = [
        text
        for record in _read_json("wikihop/train_22.json")
        for text in record["supports"]
    ]
    return texts


class LanguagesTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.texts = _read_texts()
        assert sum(len(cls.texts[x]) for x in _LANGUAGES) == 7341
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name

    def _vocabulary(self, name):
        """Returns a vocabulary's path, and its settings in `_VOCABULARIES`."""
        path = os.path.join(self.folder, f"{name}.txt")
        if name in _TRAINED:
            lower_case, strip_accents = _TRAINED[name]
            trained = library.BertWordPieceTokenizer(
                lowercase=lower_case, strip_accents=strip_accents
            )
            trained.train_from_iterator(
                (x for name in _LANGUAGES for x in self.texts[name][::3]),
                vocab_size=8000,
                show_progress=False,
                special_tokens=[*tokenizers.WORDPIECE_RESERVED_TOKENS],
            )
            ids = trained.get_vocab()
            content = "\n".join(sorted(ids, key=ids.get)).encode()
        else:
            lower_case, strip_accents = True, None
            file = real_data_path(f"vocab/bert_{name}_vocab.txt")
            content = pathlib.Path(file).read_bytes().rstrip(b"\n")
            if b"[unused0]" not in content:
                # The vocabulary of Google's Chinese BERT lacks one global
                # token.
                content += b"\n[unused0]"
        pathlib.Path(path).write_bytes(content)
        return path, lower_case, strip_accents

    @parameterized.parameters("uncased", "chinese", "cased", "with_accents")
    def test_ids_are_those_of_the_library(self, name):
        path, lower_case, strip_accents = self._vocabulary(name)
        lines = pathlib.Path(path).read_bytes().decode().split("\n")
        reference = library.Tokenizer(
            library.models.WordPiece(
                {token: i for i, token in enumerate(lines)}, unk_token="[UNK]"
            )
        )
        reference.normalizer = library.normalizers.BertNormalizer(
            lowercase=lower_case, strip_accents=strip_accents
        )
        reference.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        with open(os.path.join(self.folder, "tokenizer.json"), "w") as stream:
            stream.write(reference.to_str())
        tokenizer = tokenizers.make_tokenizer(path)
        different = {}
        for kind, texts in self.texts.items():
            found = tokenizer.tokenize(texts).to_list()
            expected = reference.encode_batch(texts, add_special_tokens=False)
            different[kind] = sum(
                x != y.ids for x, y in zip(found, expected, strict=True)
            ) / len(texts)
            few = slice(None, None, 20)
            ids, *places = tokenizer.tokenize_with_offsets(texts[few])
            self.assertEqual(ids.to_list(), found[few])
            for text, y, starts, ends in zip(
                texts[few],
                expected[few],
                *(x.to_list() for x in places),
                strict=True,
            ):
                self._check_places(text, y.offsets, starts, ends)
        # In no text does a token differ.
        self.assertEqual(different, dict.fromkeys(self.texts, 0.0))

    def _check_places(self, text, offsets, starts, ends):
        """Checks that offsets equal those of the library, save for accents."""
        raw = text.encode()
        parts = [
            raw[start:end].decode()
            for start, end in zip(starts, ends, strict=True)
        ]
        self.assertEqual(
            [
                part[: end - start]
                for part, (start, end) in zip(parts, offsets, strict=True)
            ],
            [text[start:end] for start, end in offsets],
        )
        if text.isascii():
            self.assertEqual([*zip(starts, ends, strict=True)], offsets)


if __name__ == "__main__":
    tf.test.main()
