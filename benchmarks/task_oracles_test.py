"""The graph's features equal those of the oracles.

On real records, and on random Unicode ones: their texts and structures are
drawn by `hypothesis`, always the same ones. The graph of each task is traced
once.
"""

import functools
import itertools
import os
import tempfile
import unicodedata

import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized
from hypothesis import assume
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from benchmarks import layout_oracle
from benchmarks import task_oracles
from benchmarks.reference_tokenizer import BertTokenizer
from etcmodel import errors
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.hotpotqa.records import Paragraph
from etcmodel.datasets.nq.records import Annotation
from etcmodel.datasets.nq.records import Candidate
from etcmodel.datasets.nq.records import NQRecord
from etcmodel.datasets.wikihop import WikiHopRecord
from etcmodel.feature_utils.text import sentences
from etcmodel.feature_utils.text import tokenizers
from etcmodel.feature_utils.text import vocabulary_files
from etcmodel.pipeline import example_maker
from etcmodel.tasks import registry
from testing.helpers import real_data_path
from testing.tasks import encode_records

# Scripts with and without case, with marks that are a part of a character or
# follow it, syllables and ideographs of every block, white space of every kind,
# emoji, punctuation, symbols, characters that others are spelled out as.
LETTERS = (
    "abAB01._-'<>,$ \t\n\r\xa0\u2003\u2028\u3000éÅğİ\u0301\u0323\u20dd\ufe0f"
    "ЙжНкשׁקاकिไ한が中㐀\uf900𠀀😀👍🏽🇩€§¿«。་½ﬃßſςΣⅣ①Ａ㎏ŀ…\u115f\u3164"
)
# Dropped.
IGNORED = "\x85\u0600\ufffd\ue000\xad\u200b\u200d\ufeff"
# Dropped by tokenizers, but for tasks they are spaces.
CONTROLS = "\x00\x07\x1f\x7f"
# No vocabulary has them, so words with them are unknown.
UNKNOWN = "жि𠀀"
CONTROL_SPACES = str.maketrans(dict.fromkeys(CONTROLS, " "))

_SETTINGS = settings(
    max_examples=60, derandomize=True, deadline=None, database=None
)


class Tokenizer(BertTokenizer):
    """BERT's, of texts of which tasks have made control characters spaces."""

    def __call__(self, text):
        return super().__call__(text.translate(CONTROL_SPACES))

    def with_offsets(self, text):
        return super().with_offsets(text.translate(CONTROL_SPACES))


@functools.cache
def vocabulary() -> str:
    """A file with a piece for every character but the unknown ones."""
    pieces = dict.fromkeys(
        char
        for char in unicodedata.normalize("NFD", LETTERS.lower())
        if not char.isspace()
        and unicodedata.category(char) != "Mn"
        and char not in UNKNOWN
    )
    reserved = [*tokenizers.WORDPIECE_RESERVED_TOKENS]
    reserved += ["[unused102]", "[unused103]", "ab", "##ab", "a01"]
    tokens = [*reserved, *pieces, *(f"##{piece}" for piece in pieces)]
    handle, path = tempfile.mkstemp()
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write("\n".join(tokens))
    return path


def tearDownModule():
    os.remove(vocabulary())


def texts(
    alphabet: str = LETTERS + IGNORED + CONTROLS, min_size=0, max_size=12
):
    return st.text(alphabet, min_size=min_size, max_size=max_size)


@st.composite
def hotpotqa_records(draw):
    # A paragraph without any text is padding if it is the last one.
    paragraphs = st.builds(
        Paragraph,
        texts(min_size=1, max_size=4),
        st.lists(texts(), max_size=4).map(tuple),
    )
    context = draw(st.lists(paragraphs, min_size=1, max_size=4))
    everything = [x for p in context for x in (p.title, *p.sentences)]
    text = draw(st.sampled_from(everything))
    start = draw(st.integers(0, len(text)))
    size = draw(st.integers(0, 4))
    fact = st.tuples(
        st.sampled_from([*(p.title for p in context), "?"]), st.integers(0, 4)
    )
    return HotpotQARecord(
        id="x",
        question=draw(texts()),
        context=tuple(context),
        answer=draw(st.sampled_from([text[start : start + size], "yes", "no"])),
        supporting_facts=tuple(draw(st.lists(fact, max_size=4))),
    )


@st.composite
def nq_records(draw):
    html = st.sampled_from(["<P>", "</P>", "<Table>"])
    words = draw(
        st.lists(
            st.tuples(texts(max_size=4), st.just(False))
            | st.tuples(html, st.just(True)),
            min_size=1,
            max_size=30,
        )
    )
    places = st.integers(0, len(words))
    ends = sorted(draw(st.sets(places, max_size=8)))
    candidates = []
    for start, end in zip(ends[::2], ends[1::2], strict=False):
        candidates.append(Candidate(start, end, True))
        if end - start > 2 and draw(st.booleans()):
            candidates.append(Candidate(start + 1, end - 1, False))
    annotation = Annotation(-1, -1, (), "none")
    if candidates and draw(st.booleans()):
        chosen = draw(st.sampled_from(candidates))
        middle = draw(st.integers(chosen.start, chosen.end - 1))
        annotation = Annotation(
            chosen.start,
            chosen.end,
            draw(st.sampled_from([(), ((middle, middle + 1),)])),
            draw(st.sampled_from(["none", "yes", "no"])),
        )
    return NQRecord(
        id="7",
        question=draw(texts()),
        tokens=tuple(word for word, _ in words),
        is_html=tuple(is_html for _, is_html in words),
        candidates=tuple(candidates),
        annotations=(annotation,),
    )


@st.composite
def wikihop_records(draw):
    # The reference wants the text of a candidate beside its tokens, so two
    # words have the same tokens here only if they are the same word. Few ones,
    # so that there are mentions.
    letters = texts("abAB01Нקक한😀👍", min_size=1, max_size=3)
    words = draw(st.lists(letters | st.sampled_from("中㐀"), min_size=1))
    row = st.lists(st.sampled_from(words), max_size=6).map(" ".join)
    short = st.lists(st.sampled_from(words), min_size=1, max_size=2)
    sentences_ = st.lists(row, min_size=1, max_size=6).map(" . ".join)
    return WikiHopRecord(
        id="x",
        query=draw(texts(min_size=1, max_size=8)),
        supports=tuple(draw(st.lists(sentences_, max_size=4))) + ("a",),
        candidates=tuple(
            draw(st.lists(short.map(" ".join), min_size=1, max_size=4))
        ),
    )


def check_examples(test, task, writer, tokenizer, records):
    """What is stored of a batch of records is what the oracle stores.

    Examples for training are those of validation without texts, without what
    only decoding needs, and without those that teach nothing.
    """
    oracle = task_oracles.ORACLES[task]
    trained = encode_records(writer, records, "train")
    validated = encode_records(writer, records, "dev")
    for record, made, full in zip(records, trained, validated, strict=True):
        expected = oracle.encode(record, tokenizer, writer.preprocessor.config)
        test.assertLen(made.examples, len(expected))
        rows = [layout_oracle.from_example(x) for x in full.examples]
        rows = {tuple(row.get("window", ())): row for row in rows}
        for stored, theirs in zip(made.examples, expected, strict=True):
            theirs = layout_oracle.from_example(theirs)
            if "units" in theirs:
                # Texts to read answers from are kept as they are tokenized.
                theirs["units"] = [
                    tokenizers.sanitize(x).numpy() for x in theirs["units"]
                ]
            row = rows[tuple(theirs.get("window", ()))]
            test.assertEqual(row, theirs, record.id)
            kept = writer.schema.select(row, "train") | {"for_training": [1]}
            test.assertEqual(kept, layout_oracle.from_example(stored))
    return sum(bool(x.examples) for x in trained)


def make_encoder(task, vocab, **sizes):
    spec = registry.get(task)
    return example_maker.of_task(
        spec, spec.make_preprocessing_config(sizes), vocab
    )


def traced(function):
    """A graph function of a vector of texts."""
    return tf.function(
        function, input_signature=[tf.TensorSpec([None], tf.string)]
    )


class RandomRecordsTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tokens = vocabulary_files.load_vocab(vocabulary())
        cls.tokenizer = BertTokenizer(tokens)
        cls.task_tokenizer = Tokenizer(tokens)
        cls.graph = tokenizers.WordpieceTokenizer(vocabulary())

    def test_tokens(self):
        tokenize = traced(self.graph.tokenize)

        @_SETTINGS
        @given(st.lists(texts(), max_size=6))
        def check(batch):
            self.assertEqual(
                tokenize(tf.constant(batch, tf.string)).to_list(),
                [self.tokenizer(text) for text in batch],
            )

        check()

    def test_offsets(self):
        tokenize = traced(self.graph.tokenize_with_offsets)

        @_SETTINGS
        @given(st.lists(texts(), max_size=6))
        def check(batch):
            made = tokenize(tf.constant(batch, tf.string))
            for text, *columns in zip(
                batch, *(x.to_list() for x in made), strict=True
            ):
                places = task_oracles.byte_offsets(text)
                expected = [
                    (token, places[start], places[end])
                    for token, start, end in self.tokenizer.with_offsets(text)
                ]
                self.assertEqual([*zip(*columns, strict=True)], expected)

        check()

    @parameterized.parameters(
        ("hotpotqa", hotpotqa_records, dict(long_length=40, global_length=20)),
        (
            "nq",
            nq_records,
            dict(long_length=16, global_length=7, stride=5, question_length=3),
        ),
    )
    def test_examples(self, task, records, sizes):
        encoder = make_encoder(task, vocabulary(), **sizes)

        @_SETTINGS
        @given(st.lists(records(), min_size=1, max_size=3))
        def check(records):
            check_examples(self, task, encoder, self.task_tokenizer, records)

        check()

    def test_wikihop(self):
        sizes = {"long_length": 64, "global_length": 40}
        encoder = make_encoder(
            "wikihop", vocabulary(), max_num_sentences=7, **sizes
        )
        split = traced(sentences.split_sentences)
        too_long = WikiHopRecord("x", "b", ("a " * 70,), ("a",))

        @_SETTINGS
        @given(st.lists(wikihop_records(), min_size=1, max_size=3))
        @example([too_long])
        def check(records):
            for record in records:
                kept = (*record.candidates, record.query)
                # The reference needs room for them, and for a sentence.
                assume(sum(len(self.task_tokenizer(x)) for x in kept) < 64)
            features = encoder.preprocess(records).layout.features
            made = {name: value.numpy() for name, value in features.items()}
            for i, record in enumerate(records):
                found = split(tf.constant(record.supports)).to_list()
                documents = [[x.decode() for x in row] for row in found]
                expected = task_oracles.lay_out_wikihop(
                    record.query,
                    record.candidates,
                    range(len(documents)),
                    self.task_tokenizer,
                    split=documents.__getitem__,
                    max_sentences=7,
                    **sizes,
                )
                self.assertEqual(
                    {name: x[i].tolist() for name, x in made.items()},
                    expected.padded(**sizes),
                )

        check()


class HandTest(parameterized.TestCase):
    """What random records do not reach, and real ones rarely."""

    @parameterized.parameters(
        (["arty Art", "art, part art"], " art ", [(1, 0, 3), (1, 10, 13)]),
        (["arty Art", "part"], "art", [(0, 5, 8)]),
        (["arty", "pARt"], "art", [(0, 0, 3)]),
        (["İ ART, part"], "art", [(0, 2, 5)]),
        (["İ ART, is"], "art", [(0, 2, 5)]),
        (["a"], " ", []),
    )
    def test_find_answer(self, texts, answer, expected):
        self.assertEqual(task_oracles.find_answer(texts, answer), expected)

    def test_truncate(self):
        one = [[1] * 4, [1] * 2, [1] * 4]
        self.assertEqual(task_oracles.truncate(one, 7, 99), [2, 2, 3])
        self.assertEqual(task_oracles.truncate(one, 99, 3), [1, 1, 1])

    def test_find_mentions(self):
        tokens = {"a b a b a": [1, 2, 1, 2, 1], "a b a": [1, 2, 1]}
        self.assertEqual(
            task_oracles.find_mentions("a b a b a", "A b a", tokens.get),
            [(0, 2), (2, 4)],
        )


class RealRecordsTest(parameterized.TestCase):
    @parameterized.parameters(
        (
            "hotpotqa",
            ("train_200.json", "dev_95.json", "2wiki_train_500.json"),
            {"long_length": 700, "global_length": 60},
        ),
        (
            "nq",
            ("nq-train-00.jsonl.gz", "nq-train-01.jsonl.gz"),
            {
                "include_html_tokens": False,
                "question_length": 5,
                "long_length": 512,
                "stride": 128,
                "global_length": 40,
            },
        ),
    )
    def test_same_examples(self, task, names, sizes):
        vocab = real_data_path("vocab/bert_uncased_vocab.txt")
        tokenizer = Tokenizer(vocabulary_files.load_vocab(vocab))
        records = []
        for name in names:
            found = registry.get(task).dataset.FORMAT.read(
                real_data_path(f"{task}/{name}"),
                "train",
                errors.BadRecords(True),
            )
            records += itertools.islice(found, 30)
        self.assertLen(records, 90 if task == "hotpotqa" else 3)
        for values in ({}, sizes):
            learned = check_examples(
                self,
                task,
                make_encoder(task, vocab, **values),
                tokenizer,
                records,
            )
            self.assertGreater(learned, len(records) // 3)


if __name__ == "__main__":
    absltest.main()
