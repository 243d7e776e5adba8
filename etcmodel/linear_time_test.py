"""Tests that patterns and functions take linear time on users' texts.

Compares times for 10 and 100 kB of repeated characters. The limits are so high
that only quadratic functions exceed them.
"""

import ast
import functools
import gc
import importlib
import json
import pathlib
import re
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf
from absl.testing import parameterized

from etcmodel import errors
from etcmodel.datasets import answer_metrics
from etcmodel.datasets import answer_spans
from etcmodel.datasets import classification
from etcmodel.datasets import documents
from etcmodel.datasets import normalized_texts
from etcmodel.datasets import plain_texts
from etcmodel.datasets import question_answering
from etcmodel.datasets import selection
from etcmodel.datasets import triviaqa
from etcmodel.datasets.narrativeqa import metrics
from etcmodel.datasets.narrativeqa import oracle
from etcmodel.datasets.narrativeqa import stories
from etcmodel.feature_utils.text import sentences
from etcmodel.feature_utils.text import tokenizers
from etcmodel.readers import cells
from etcmodel.readers import tables
from etcmodel.serving import page
from etcmodel.tasks.documents import documents as document_features
from etcmodel.tasks.read_twice import mention_finder
from etcmodel.tasks.wikihop import mentions
from testing.helpers import real_data_path

_PACKAGE = pathlib.Path(__file__).resolve().parent
# Small sizes come first, so that cubic functions fail early.
_SIZES = 1_000, 10_000, 100_000
# Limit of the time per character, relative to the shorter text. The ratio is 10
# for a quadratic function.
_FACTOR = 3
# Times below this, in seconds, pass: quadratic functions take longer.
_FLOOR = 0.3
# Patterns get shorter texts, since there are many patterns. The fastest
# quadratic patterns take 0.16 s for 20,000 characters.
_SIZES_OF_PATTERNS = 1_000, 20_000
_FLOOR_OF_PATTERNS = 0.08

_FEW_UNITS = "a", " ", "\n", "'", "A b "
_UNITS = (
    *_FEW_UNITS,
    *("1", "(", ". "),
    *("0.", "e\u0301", "\n ", "\r", '"', '""', "[", "{", "</", "<a ", "<!--"),
    *("&#1", "= ", " =", "\\", "\\ud83d", "-", ",", "/", "*", '{"a":'),
)
# Modules that build patterns at run time: from names of the package or of
# TensorFlow, or in functions that are tested below.
_BUILT = {
    "etcmodel.checkpoints.bert_names",
    "etcmodel.checkpoints.files",
    "etcmodel.checkpoints.lifting",
    "etcmodel.datasets.answer_spans",
    "etcmodel.readers.json_stream",
    "etcmodel.tasks.read_twice.mention_finder",
    "etcmodel.feature_utils.text.sentences",
    "etcmodel.feature_utils.text.tokenizers",
    # These patterns match file names, which have at most 255 bytes.
    "etcmodel.pipeline.swaps",
    "etcmodel.training.run_directory",
}


_METHODS = "search", "match", "fullmatch", "findall", "finditer", "sub", "split"


class _Use(NamedTuple):
    """A call with a regular expression in the package."""

    place: str
    pattern: str
    run: Callable[[str], object]


def _calls(module: str) -> Iterator[ast.Call]:
    """Yields calls that may call functions of `re` or `tf.strings`."""
    path = _PACKAGE.parent / (module.replace(".", "/") + ".py")
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in _METHODS or name.startswith("regex_"):
                yield node


def _uses(module: str) -> Iterator[_Use]:
    """Yields calls whose pattern is known when the module is imported."""
    names = vars(importlib.import_module(module))

    def value(node):
        return eval(compile(ast.Expression(node), module, "eval"), names)

    for node in _calls(module):
        owner, method = node.func.value, node.func.attr
        of_re, of_tf = ast.unparse(owner) == "re", method.startswith("regex_")
        arguments = [*node.args, *(x.value for x in node.keywords)]
        flags = [x for x in arguments if ast.unparse(x).startswith("re.")]
        try:
            pattern = value(arguments[of_tf] if of_re or of_tf else owner)
        except (NameError, TypeError):
            # The pattern may be a local variable: a string or a `re.Pattern`.
            if module in _BUILT or (method == "split" and not of_re):
                continue
            raise AssertionError(
                f"{module}:{node.lineno}: the pattern is built at run time. "
                "Add the function to the table of functions, and the module "
                "to `_BUILT`."
            ) from None
        if of_tf:
            run = functools.partial(_replace_all, pattern)
        elif of_re or isinstance(pattern, re.Pattern):
            pattern = re.compile(pattern, sum(map(value, flags)))
            run = functools.partial(_run, pattern, method)
            pattern = pattern.pattern
        else:
            continue
        if isinstance(pattern, bytes):
            pattern = pattern.decode("latin-1")
        yield _Use(f"{module}:{node.lineno}", pattern, run)


def _replace_all(pattern: str, text: str) -> None:
    tf.strings.regex_replace([text], pattern, "")


def _run(pattern: re.Pattern, method: str, text: str) -> None:
    if isinstance(pattern.pattern, bytes):
        text = text.encode()
    if method in ("search", "match", "fullmatch"):
        getattr(pattern, method)(text)
    else:
        for _ in pattern.finditer(text):
            pass


def _modules() -> list[str]:
    """Returns the modules that use patterns."""
    found = []
    for path in sorted(_PACKAGE.rglob("*.py")):
        is_test = path.name.endswith("_test.py")
        if not is_test and re.search(
            r"^import re$|\.regex_", path.read_text("utf-8"), re.MULTILINE
        ):
            parts = path.relative_to(_PACKAGE.parent).with_suffix("").parts
            found.append(".".join(parts))
    return found


def _rows(format_, **fields):
    """Returns a function that reads a row with the text in place of `...`."""

    def read(text):
        row = {name: text if x is ... else x for name, x in fields.items()}
        for _ in format_.read_rows([row], "dev", errors.BadRecords(True)):
            pass

    return read


def _from_file(ending: str, read, content: str = "%s", escape=str):
    """Returns a function that reads a file with the text in place of `%s`."""

    def run(text):
        with tempfile.NamedTemporaryFile(suffix=ending) as stream:
            text = content.replace("%s", escape(text))
            stream.write(text.encode("utf-8", "replace"))
            stream.flush()
            try:
                for _ in read(stream.name):
                    pass
            except errors.UserError:
                pass

    return run


def _graph(function):
    return lambda text: function(tf.constant([text]))


@functools.cache
def _tokenizer():
    path = real_data_path("vocab/bert_uncased_vocab.txt")
    return tokenizers.WordpieceTokenizer(path)


def _half(text: str) -> str:
    return text[: len(text) // 2].strip()


_TABLE = tables.read_rows
_FUNCTIONS = {
    # Functions that take texts or answers.
    "normalize": normalized_texts.normalize,
    "normalize_answer": answer_metrics.normalize_answer,
    "normalize_triviaqa": triviaqa.normalize_answer,
    "word_scores": lambda x: answer_metrics.word_scores(x, x),
    "approximate_answers": lambda x: oracle.find_approximate_answers(
        oracle.Words(x), "a b"
    ),
    "story": stories.clean,
    "story_in_html": lambda x: stories.clean(f"<html><p>{x}"),
    "story_in_a_tag": lambda x: stories.clean(f"<html>{x}>"),
    "story_in_bytes": lambda x: stories.decode(x.encode()),
    "page": lambda x: page.to_text(x.encode(), "text/html"),
    "without_stack": errors.without_stack,
    # Functions that read records.
    "document": _rows(classification.FORMAT, text=...),
    "label": _rows(classification.FORMAT, text="a", label=...),
    "number": _rows(
        classification.make_format(label_kind="number"), text="a", label=...
    ),
    "selected": _rows(selection.FORMAT, text=..., selected=...),
    "answer": _rows(question_answering.FORMAT, context="a", answers=...),
    "answer_in_text": _rows(
        question_answering.FORMAT, context=..., question="a", answers=...
    ),
    "has_sentence_end": document_features._has_sentence_end,
    # Functions that read files.
    "wikitext": _from_file(".txt", plain_texts.read_wikitext),
    "pieces": _from_file(".txt", plain_texts.read_pieces),
    "text": _from_file(".txt", documents.FORMAT.read),
    "json": _from_file(".json", _TABLE),
    "json_lines": _from_file(".jsonl", _TABLE, '{"a": %s'),
    "json_array": _from_file(".json", _TABLE, '[{"a": %s'),
    "typed_array": _from_file(
        ".json",
        classification.FORMAT.read,
        '[{"id": "1", "text": %s}]',
        json.dumps,
    ),
    "cell_with_list": lambda x: cells.read_cell(f"[{x}]"),
}
_SLOW_FUNCTIONS = {
    "nested_array": _from_file(
        ".json",
        classification.FORMAT.read,
        '[{"id": [%s]}, {"id": 1}]',
        lambda x: ",".join(['{"id":1}'] * (len(x) // 9)),
    ),
    "markdown": lambda x: page.to_text(x.encode(), "text/markdown"),
    "csv": _from_file(".csv", _TABLE),
    "csv_row": _from_file(".csv", _TABLE, "text,id\n%s"),
    "csv_cell": _from_file(".csv", _TABLE, 'text,id\n"%s",1\n'),
    "tsv_row": _from_file(".tsv", _TABLE, "text\tid\n%s"),
    "tsv_cell": _from_file(".tsv", _TABLE, 'text\tid\n"%s"\t1\n'),
    "sanitize": _graph(tokenizers.sanitize),
    "wordpiece": lambda x: _tokenizer().tokenize_with_offsets([x]),
    "wordpiece_keys": lambda x: _tokenizer().tokenize_with_keys([x]),
    "sentences": _graph(sentences.split_sentences),
    "mentions": _graph(mention_finder.find_mentions),
    "words": _graph(mentions.split_words),
    "narrativeqa_score": lambda x: metrics.score({"": x}, {"": ["a b"]}),
    "find_answers": lambda x: answer_spans.find_answers([x], ["a", "A b"]),
    "find_long_answer": lambda x: answer_spans.find_answers([x], [_half(x)]),
}


class LinearTimeTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        """Pauses the garbage collector, which would distort the times."""
        super().setUp()
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)

    def _check(self, name, function, units, sizes=_SIZES, floor=_FLOOR):
        for unit in units:
            before, taken = 0, 0.0
            for size in sizes:
                # The last character differs, so that the whole text does not
                # match.
                text = unit * (size // len(unit)) + "\x01"
                most = floor
                if before:
                    most = max(_FACTOR * taken * size / before, floor)
                # Repeats slow runs, which caches or system load may explain.
                for _ in range(3):
                    start = time.process_time()
                    function(text)
                    taken = time.process_time() - start
                    if taken <= most:
                        break
                else:
                    self.fail(
                        f"{name}: {taken:.2f} s for {size:,} characters of "
                        f"{unit!r}; expected at most {most:.2f} s."
                    )
                before = size

    def test_patterns(self):
        """Checks all patterns of the package, also on their own words."""
        for module in _modules():
            for place, pattern, run in _uses(module):
                words = re.findall(r"[A-Za-z][A-Za-z :'-]+", pattern)
                units = (*_UNITS, *words[:4])
                self._check(
                    f"{place} {pattern}",
                    run,
                    units,
                    _SIZES_OF_PATTERNS,
                    _FLOOR_OF_PATTERNS,
                )

    def test_functions(self):
        for name, function in _FUNCTIONS.items():
            self._check(name, function, _UNITS)
        for name, function in _SLOW_FUNCTIONS.items():
            self._check(name, function, _FEW_UNITS)


if __name__ == "__main__":
    tf.test.main()
