r"""HotpotQA from a few hundred records, and random weights or those of a BERT.

Trains a small model, with the package's own commands, and prints the official
metrics on records that it has not seen, next to two that no one has to train:

*   word overlap: the supporting facts are the sentences that share the most
    words with the question (how many sentences, is chosen on the training
    records); the answer is the title of the best one's paragraph;
*   most frequent answer type: "yes", "no" or, if most answers are text,
    nothing but the type; what its answer scores is that of the more frequent
    word of the two.

    python -m benchmarks.hotpotqa_small --train=train_200.json \
        --train=2wiki_train_500.json --dev=dev_95.json --vocab_file=vocab.txt

The model has no pre-training: what it learns is what these records hold. With
`--lift` it begins as a BERT, which `lift` takes from a directory:

    python -m benchmarks.hotpotqa_small --lift=all-MiniLM-L6-v2 \
        --lift_option=--absolute_positions=paragraph \
        --lift_option=--question_words_in_global \
        --lift_option=--local_radius=42 --pseudo_steps=350 --steps=250 \
        --copies=2 --long_length=640 --evaluated_length=2048 \
        --learning_rate=1e-4 --fact_prior=0.1 --fact_threshold=0.3 \
        --train=train_200.json --train=train_200.json --train=train_200.json \
        --train=2wiki_train_500.json --dev=dev_95.json \
        --train_option=--params_override=runtime.mixed_precision_dtype=bfloat16

There it learns from pseudo-questions about the paragraphs of the records, and
then from copies of the records, each with other paragraphs of its own (see
`augmentation`). With `--pretrain_steps` it learns from the texts of the
records, and of `--pretrain_text`, before all that.
"""

import collections
import json
import re
import time
from collections.abc import Sequence

from absl import app
from absl import flags

from benchmarks import hotpotqa_training
from benchmarks import training_runs
from etcmodel.datasets.hotpotqa import metrics
from etcmodel.datasets.hotpotqa.records import FORMAT
from etcmodel.datasets.hotpotqa.records import HotpotQARecord

# Words that nearly every sentence has.
_COMMON_WORDS = frozenset(
    "a an and are as at by for from has in is it its of on or that the this to "
    "was were what when where which who whom whose with".split()
)

Prediction = tuple[str, list[tuple[str, int]]]


def words_of(text: str) -> frozenset[str]:
    """The words of a text that can tell it from others, in lower case.

    Args:
        text: any text.

    Returns:
        Its words without the most common ones.
    """
    return frozenset(re.findall(r"\w+", text.lower())) - _COMMON_WORDS


def rank_sentences(record: HotpotQARecord) -> list[tuple[str, int]]:
    """Sentences by the number of words they share with the question.

    The title counts as a part of each sentence of its paragraph. Of equals the
    first comes first.

    Args:
        record: the record.

    Returns:
        (title, sentence) pairs, the best first.
    """
    question = words_of(record.question)
    scored = []
    for paragraph in record.context:
        title = words_of(paragraph.title)
        for index, sentence in enumerate(paragraph.sentences):
            shared = question & (title | words_of(sentence))
            scored.append((len(shared), (paragraph.title, index)))
    scored.sort(key=lambda pair: -pair[0])
    return [fact for _, fact in scored]


def predict_by_overlap(
    records: Sequence[HotpotQARecord], num_facts: int
) -> dict[str, Prediction]:
    """The word-overlap baseline.

    Args:
        records: the records.
        num_facts: how many sentences are supporting facts.

    Returns:
        Record id -> answer and supporting facts.
    """
    predictions = {}
    for record in records:
        facts = rank_sentences(record)[:num_facts]
        predictions[record.id] = (facts[0][0], facts)
    return predictions


def answer_type(record: HotpotQARecord) -> str:
    """`"yes"`, `"no"` or `"span"`."""
    return record.answer if record.answer in ("yes", "no") else "span"


def score(
    predictions: dict[str, Prediction], records: Sequence[HotpotQARecord]
) -> dict[str, float]:
    """The official metrics.

    Args:
        predictions: record id -> answer and supporting facts.
        records: records with answers.

    Returns:
        See `metrics.evaluate`.
    """
    return metrics.evaluate(
        {key: answer for key, (answer, _) in predictions.items()},
        {key: facts for key, (_, facts) in predictions.items()},
        {x.id: (x.answer, x.supporting_facts) for x in records},
    )


def measure_baselines(
    train: Sequence[HotpotQARecord], dev: Sequence[HotpotQARecord]
) -> dict[str, dict[str, float]]:
    """Scores of both baselines.

    Args:
        train: training records: what is most frequent is counted there.
        dev: records to measure on.

    Returns:
        Name -> metrics, with `answer_type_accuracy`.
    """
    by_number = {
        n: score(predict_by_overlap(train, n), train)["sp_f1"]
        for n in range(1, 7)
    }
    num_facts = max(by_number, key=by_number.get)
    overlap = score(predict_by_overlap(dev, num_facts), dev)
    types = collections.Counter(map(answer_type, train))
    most = types.most_common(1)[0][0]
    word = max(("yes", "no"), key=lambda word: types[word])
    constant = score({record.id: (word, []) for record in dev}, dev)
    right = sum(answer_type(record) == most for record in dev)
    return {
        f"word overlap, {num_facts} sentences": overlap,
        f'most frequent type ({most}), or always "{word}"': {
            **constant,
            "answer_type_accuracy": right / len(dev),
        },
    }


def print_table(rows: dict[str, dict[str, float]]) -> None:
    """Prints the metrics in percent.

    Args:
        rows: name -> metrics.
    """
    columns = {
        "em": "ans EM",
        "f1": "ans F1",
        "sp_em": "sup EM",
        "sp_f1": "sup F1",
        "joint_em": "joint EM",
        "joint_f1": "joint F1",
        "answer_type_accuracy": "type",
    }
    width = max(map(len, rows))
    print(f"{'':{width}}" + "".join(f"{x:>10}" for x in columns.values()))
    for name, row in rows.items():
        cells = (
            f"{100 * row[key]:10.1f}" if key in row else f"{'':10}"
            for key in columns
        )
        print(f"{name:{width}}" + "".join(cells))


def main(argv: list[str]) -> None:
    """Measures and prints a table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    values = flags.FLAGS
    train = [
        x for file in dict.fromkeys(values.train) for x in FORMAT.read(file)
    ]
    dev = list(FORMAT.read(values.dev))
    rows = measure_baselines(train, dev)
    print_table(rows)
    start = time.perf_counter()
    with training_runs.open_directory(values) as directory:
        result = hotpotqa_training.Training(values, directory).run()
    seconds = time.perf_counter() - start
    rows[f"ETC, {values.steps} steps"] = result
    print(
        f"\n{len(train)} training records, {len(dev)} to measure on, "
        f"{seconds:.0f} s; supporting facts from a probability of "
        f"{result['supporting_fact_threshold']}"
    )
    print_table(rows)
    if values.output:
        with open(values.output, "w", encoding="utf-8") as stream:
            json.dump({"rows": rows, "seconds": seconds}, stream, indent=2)
            stream.write("\n")


if __name__ == "__main__":
    hotpotqa_training.define_flags(flags.FLAGS)
    flags.DEFINE_string("output", None, "JSON file for the numbers.")
    flags.mark_flags_as_required(["train", "dev"])
    flags.mark_flags_as_mutual_exclusive(["vocab_file", "lift"], required=True)
    flags.register_multi_flags_validator(
        ["pretrain_steps", "lift"],
        lambda x: x["lift"] or not x["pretrain_steps"],
        "--pretrain_steps is of a model that is lifted.",
    )
    app.run(main)
