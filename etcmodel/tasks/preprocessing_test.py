"""Tests properties that the preprocessing of all tasks shares."""

import atexit
import functools
import shutil
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.inspection.pictures import inspect
from etcmodel.models import EtcConfig
from etcmodel.pipeline import example_maker
from etcmodel.pipeline import example_schema
from etcmodel.pipeline.preprocessor import EtcPreprocessor
from etcmodel.pipeline.spec import load
from etcmodel.tasks import registry
from testing import records
from testing import tasks

_TASKS = tuple(tasks.SMALL_RECORDS)
_WITH_ANSWERS = tuple(x for x in _TASKS if registry.get(x).has_answers)
_OF_ETC = tuple(
    x
    for x in _WITH_ANSWERS
    if issubclass(load(registry.get(x).preprocessor), EtcPreprocessor)
)
# The global tokens of the first record, and part of its summary.
_INSPECTED = {
    "answer": (
        "[CLS]|where|is|jan|?|par 0|unit 0.0|unit 0.1|unit 0.2",
        {"query": "Where is Jan?", "answer": ["Bonn"]},
    ),
    "classify": (
        "[CLS]|par 0|unit 0.0|unit 0.1",
        {"query": "none", "label": "'Bonn'"},
    ),
    "hotpotqa": (
        "[CLS]|where|is|jan|?|par 0|title 0|sent 0.0|sent 0.1",
        {
            "question": "Where is Jan?",
            "answer": "paris",
            "supporting facts": "Jan 1",
            "titles and sentences": "3, of which 0 cut",
        },
    ),
    "nq": (
        "[CLS]|where|is|jan|page 0.0|page 0.1",
        {
            "question": "where is jan",
            "answers": "(0, 7), short [(4, 5)], yes/no none",
        },
    ),
    "openkp": (
        "12 pt: early|14 pt: Early monkey black|14 pt: Library Movie|"
        "14 pt: Battery Dark|12 pt: wheel football|16 pt: Singer iron lawyer|"
        "20 pt: bottle modern|32 pt: Spider winter|"
        "16 pt: Elephant camera bottle",
        {"keyphrases": "Spider Winter, Bottle Modern, Western Planet"},
    ),
    "select": (
        "[CLS]|where|is|jan|?|par 0|unit 0.0|unit 0.1",
        {"query": "Where is Jan?", "selected": 1},
    ),
    "wikihop": (
        "paris|rome|oslo|bonn|city|jan|doc 0|sent 0.0|doc 1|sent 1.0|sent 1.1",
        {"query": "city jan", "answer": "paris"},
    ),
}


@functools.cache
def _small(task):
    """Returns an example writer and nine records, which are cached."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write, flags = tasks.SMALL_RECORDS[task]
    path, vocab_file = write(folder, 9)
    spec = registry.get(task)
    sizes = dict(x.removeprefix("--").split("=") for x in flags)
    config = spec.make_preprocessing_config(
        {name: int(size) for name, size in sizes.items()}
    )
    found = list(spec.format(config).read(path, "dev"))
    if spec.complete:
        config = load(spec.complete)(config, found)
    return example_maker.of_task(spec, config, vocab_file), found


class PreprocessingTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(tasks.without_tracing())

    @parameterized.parameters(*_TASKS)
    def test_examples_do_not_depend_on_the_batch(self, task):
        writer, found = _small(task)
        together = tasks.encode_records(writer, found, "train")
        for record, expected in zip(found, together, strict=True):
            (alone,) = tasks.encode_records(writer, [record], "train")
            self.assertEqual(expected, alone)

    @parameterized.parameters(*_OF_ETC)
    def test_predict_stores_no_labels(self, task):
        writer, found = _small(task)
        labels = {*writer.schema.names(example_schema.LABEL)}
        labels.add(example_schema.GOLD)
        seen = set()
        for dev, predict in zip(
            *(
                tasks.encode_records(writer, found, x)
                for x in ("dev", "predict")
            ),
            strict=True,
        ):
            for pair in zip(dev.examples, predict.examples, strict=True):
                labelled, bare = map(records.stored_values, pair)
                seen |= {x for x in labelled if labelled[x]}
                self.assertNoCommonElements(labels, bare)
                self.assertEqual(labelled, {**labelled, **bare})
        self.assertIn(example_schema.GOLD, seen)
        self.assertTrue(seen & (labels - {example_schema.GOLD}))

    @parameterized.parameters(*_WITH_ANSWERS)
    def test_invalid_bytes_are_replaced(self, task):
        preprocessor = _small(task)[0].preprocessor

        def features(mark):
            batch = preprocessor.batch_of_raw(
                **{
                    name: tf.constant(x + mark if x.dtype == object else x)
                    for name, x in preprocessor.REQUEST.items()
                }
            )
            return {**batch.inputs, **batch.context}

        for mark, same in ((b"\xff", "\ufffd".encode()), (b"\0a", b" a")):
            expected = features(same)
            for name, value in features(mark).items():
                self.assertAllEqual(expected[name], value, name)

    @parameterized.parameters(*_OF_ETC)
    def test_long_inputs_are_cut(self, task):
        """Tests one text that is too long, and too many texts."""
        writer, _ = _small(task)
        preprocessor = writer.preprocessor
        request = {x: np.asarray(y) for x, y in preprocessor.REQUEST.items()}
        texts = {x: y for x, y in request.items() if y.dtype == object}
        cases = [{x: (y + b" . ") * 2000} for x, y in texts.items()]
        if texts.keys() == request.keys():
            cases.append(
                {x: y.repeat(300, 1) for x, y in texts.items() if y.ndim > 1}
            )
        for case in cases:
            made = preprocessor(**(request | case))
            self._check(preprocessor.config, made)

    def _check(self, config, made):
        """Checks that rows are full, and ids refer to global tokens in use."""
        features = {x: y.numpy() for x, y in made.layout.features.items()}
        long_ids = features.pop("long_token_ids")
        self.assertEqual(config.long_length, long_ids.shape[1])
        number = np.count_nonzero(features["global_token_ids"], axis=1)
        for name, values in features.items():
            if name.endswith("_ids") and "type" not in name:
                if not name.startswith("global"):
                    self.assertTrue((values.max(axis=1) < number).all(), name)
        if len(long_ids) == 1:
            counts = made.layout.counts.values()
            kept = sum(int(x.kept_tokens[0]) for x in counts)
            self.assertEqual(kept, np.count_nonzero(long_ids))

    @parameterized.parameters(*_INSPECTED)
    def test_inspected(self, task):
        writer, found = _small(task)
        shown = inspect(writer, found[0], EtcConfig.from_preset("tiny"))
        tokens, summary = _INSPECTED[task]
        self.assertEqual(tokens, "|".join(shown.global_labels))
        told = dict(shown.summary)
        self.assertEqual(summary, {name: told[name] for name in summary})


if __name__ == "__main__":
    tf.test.main()
