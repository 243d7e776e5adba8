"""Tests of stored examples: labels, parts of documents and counts."""

import dataclasses

import msgspec
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import narrativeqa
from etcmodel.datasets import triviaqa
from etcmodel.datasets.hotpotqa import answer_only
from etcmodel.errors import RecordError
from etcmodel.pipeline import example_maker
from etcmodel.pipeline import example_schema
from etcmodel.tasks import registry
from etcmodel.tasks.read_twice_qa import preprocessor
from etcmodel.tasks.read_twice_qa.passages import merge_documents
from testing import reading
from testing import tasks
from testing.helpers import real_data_path


class ExamplesTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, task, records, vocab, split="train", **sizes):
        """Writes examples; returns counts, parsed values and stored texts."""
        spec = registry.get(task)
        config = spec.make_preprocessing_config(sizes)
        writer = example_maker.of_task(spec, config, vocab)
        made = tasks.make_examples(writer, records, split)
        packer = writer.make_packer()
        rows = [row for record in made for row in record.rows]
        packed = [
            writer.schema.serialize(values)
            for values in [
                *(y for x in rows for y in packer.add(x)),
                *packer.flush(),
            ]
        ]
        schema = example_schema
        roles = [schema.LABEL, schema.CONTEXT]
        roles += [] if split == "train" else [schema.DECODING]
        fields = []
        for example in packed:
            inputs, others = writer.schema.parse(
                tf.constant([example]), dataclasses.asdict(config), roles
            )
            fields.append(
                {name: x[0] for name, x in {**inputs, **others}.items()}
            )
        texts = [
            tf.train.Example.FromString(x).features.feature for x in packed
        ]
        return [x.counts for x in made], fields, texts

    def _answers(self, fields, texts):
        """Returns the texts that the labels mark, by record."""
        found, number = {}, -1
        ids = fields["block_ids"].numpy()
        for row, block_id in enumerate(ids):
            if block_id and (row == 0 or ids[row - 1] != block_id):
                number += 1
            if not block_id:
                continue
            name = texts["example_id"].bytes_list.value[number].decode()
            document = texts["document"].bytes_list.value[number]
            first = texts["document_start"].int64_list.value[number]
            answers = found.setdefault(name, set())
            for begin, end, label in zip(
                *(fields[x][row].numpy() for x in preprocessor.LABEL_FIELDS),
                strict=True,
            ):
                if label:
                    start = int(fields["token_starts"][row, begin]) - first
                    stop = int(fields["token_ends"][row, end]) - first
                    answers.add(document[start:stop].decode())
        return found

    def test_long_document_is_divided(self):
        """Training leaves out parts without an answer."""
        path, vocab = reading.write_small_triviaqa(self.get_temp_dir(), 5)
        record = list(triviaqa.FORMAT.read(path))[4]
        record = msgspec.structs.replace(record, missing_pages=2)
        sizes = dict(
            block_length=16,
            block_overlap=2,
            max_question_length=6,
            num_blocks_per_example=2,
            max_num_annotations=2,
        )
        marked = []
        for split, number in (("train", 1), ("dev", 3)):
            (counts,), fields, texts = self._write(
                "read_twice_triviaqa", [record], vocab, split, **sizes
            )
            self.assertLen(fields, number)
            self.assertEqual(1, counts["records_divided"])
            self.assertEqual(2, counts["evidence_pages_missing"])
            # The parts have two, two and one segments.
            self.assertEqual(5, counts["segments"])
            self.assertAllEqual([1, 2], fields[0]["block_pos"])
            self.assertAllEqual([2, 2], fields[0]["num_blocks"])
            windows = [
                number
                for x in fields
                for number in x["window"].numpy()[x["num_blocks"] > 0]
            ]
            self.assertEqual(list(range(5))[: 2 * number], windows)
            self.assertLen({int(x["block_ids"][0]) for x in fields}, number)
            marked.append([fields[0][x] for x in preprocessor.LABEL_FIELDS])
            # Training stores neither the text nor byte offsets of tokens.
            self.assertEqual(split == "dev", "document" in texts[0])
            self.assertEqual(split == "dev", "token_starts" in texts[0])
        self.assertAllEqual(*marked)
        # Each part has its own text.
        parts = [
            {
                "document": x["document"].bytes_list.value[0],
                "document_start": x["document_start"].int64_list.value[0],
            }
            for x in texts
        ]
        whole = record.text.encode()
        for part in parts:
            self.assertLess(len(part["document"]), len(whole))
        self.assertEqual(whole, merge_documents(parts)["document"])
        self.assertEqual(
            {"small_4": {"Paris"}}, self._answers(fields[0], texts[0])
        )

    def test_counts_and_supporting_parts(self):
        """One answer occurs too often, one is "yes", one does not occur."""
        _, vocab = reading.write_small_triviaqa(self.get_temp_dir(), 1)
        parts = ("It rains.", "Paris, Paris, Paris.", "Rome rains.")
        records = [
            msgspec.convert(
                {
                    "_id": answer,
                    "question": "Where?",
                    "context": [[x, [x]] for x in parts],
                    "answer": answer,
                    "supporting_facts": [[parts[i], 0] for i in supporting],
                },
                answer_only.ReadingRecord,
            )
            for answer, supporting in (
                ("Paris", [2, 1]),
                ("yes", [0]),
                ("Oslo", [1]),
            )
        ]
        counts, (fields,), _ = self._write(
            "read_twice_hotpotqa",
            records,
            vocab,
            "dev",
            block_length=16,
            block_overlap=0,
            max_question_length=4,
            num_blocks_per_example=9,
            max_num_annotations=2,
        )
        for name, expected in (
            ("segments", [3, 3, 3]),
            ("answers", [2, 0, 0]),
            ("answers_cut", [1, 0, 0]),
            ("records_without_an_answer_in_the_text", [0, 0, 1]),
        ):
            self.assertEqual(expected, [x[name] for x in counts], name)
        self.assertAllEqual(
            [0, 1, 1, 1, 0, 0, 0, 1, 0], fields["is_supporting"]
        )
        self.assertAllEqual([0, 0, 0, 1, 1, 1, 0, 0, 0], fields["option"])

    def test_text_without_tokens(self):
        path, vocab = reading.write_small_triviaqa(self.get_temp_dir(), 1)
        (record,) = triviaqa.FORMAT.read(path)
        record = msgspec.structs.replace(record, text="\u200b")
        with self.assertRaisesRegex(RecordError, "'small_0'.*no token"):
            self._write("read_twice_triviaqa", [record], vocab)
        for split in ("dev", "predict"):
            (counts,), (fields,), (texts,) = self._write(
                "read_twice_triviaqa", [record], vocab, split
            )
            self.assertEqual(0, counts["segments"])
            # The segment is padding; its `block_pos` marks the start of the
            # record.
            self.assertFalse(fields["block_ids"].numpy().any())
            self.assertFalse(fields["num_blocks"].numpy().any())
            self.assertEqual(1, fields["block_pos"].numpy().sum())
            self.assertEqual([b"small_0"], texts["example_id"].bytes_list.value)
            self.assertEqual(split == "dev", example_schema.GOLD in texts)

    def test_real_story(self):
        """Labels the span of a book with the best ROUGE-L.

        "Malayan" and "a prince" do not occur; "a great prince," has a comma,
        which counts. Only "a mighty prince" has two of three words. No span has
        more than a third of the longer answer.
        """
        path = real_data_path("narrativeqa/qaps.csv")
        record = list(narrativeqa.FORMAT.read(path))[2]
        self.assertEqual("a Malayan prince", record.answers[1])
        (counts,), fields, texts = self._write(
            "read_twice_narrativeqa",
            [record],
            real_data_path("vocab/bert_uncased_vocab.txt"),
            split="dev",
        )
        self.assertGreater(counts["segments"], 128)
        self.assertEqual(1, counts["records_divided"])
        found = set()
        for x, y in zip(fields, texts, strict=True):
            found |= self._answers(x, y)[record.id]
        self.assertEqual({"a mighty prince"}, found)


if __name__ == "__main__":
    tf.test.main()
