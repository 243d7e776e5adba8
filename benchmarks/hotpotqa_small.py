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

    python -m benchmarks.hotpotqa_small --lift=all-MiniLM-L6-v2 --steps=650 \
        --lift_option=--absolute_positions=paragraph \
        --lift_option=--question_words_in_global \
        --lift_option=--global_tokens=mean --lift_option=--own_text_bias=4 \
        --pseudo_questions=4000 --copies=3 \
        --long_length=640 --evaluated_length=2048 --learning_rate=2e-4 \
        --fact_prior=0.1 --fact_threshold=0.3 ...

There it learns from copies of the records, each with other paragraphs of its
own, and from pseudo-questions about these (see `augmentation`). With
`--pretrain_steps` it learns from the texts of the training records, and of
`--pretrain_text`, before it learns to answer.
"""

import collections
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Sequence

import msgspec
from absl import app
from absl import flags

from benchmarks import training_runs
from etcmodel.datasets.hotpotqa import augmentation
from etcmodel.datasets.hotpotqa import metrics
from etcmodel.datasets.hotpotqa.records import FORMAT
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.tasks.commands import cli

_GLOBAL_LENGTH = 192
# Of English words in WordPieces, less what is between paragraphs.
_CHARACTERS_PER_TOKEN = 3.7
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


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the program.

    Args:
        flag_values: where to define them.
    """
    for name, text in (
        ("dev", "Records to measure on."),
        ("vocab_file", "WordPiece vocabulary or SentencePiece model."),
        ("output", "JSON file for the numbers."),
        ("pretrain_text", "Further texts to pre-train on."),
    ):
        flags.DEFINE_string(name, None, text, flag_values=flag_values)
    flags.DEFINE_multi_string(
        "train",
        None,
        "Training records; may be given several times.",
        flag_values=flag_values,
    )
    for name, value, text in (
        ("steps", 400, "Training steps."),
        ("batch_size", 8, "Records a step."),
        ("pretrain_steps", 0, "Steps of pre-training before."),
        (
            "copies",
            0,
            "Copies of each training record, each with other of its paragraphs "
            "as long_length has room for; 0 for the records as they are.",
        ),
        ("pseudo_questions", 0, "Pseudo-questions to learn from as well."),
        ("seed", 1, "Of all that is random."),
        ("long_length", 2048, "Of the long input."),
        (
            "evaluated_length",
            0,
            "The same of the records to measure on; 0 for long_length.",
        ),
        ("hidden_size", 128, "Of the encoder."),
        ("layers", 2, "Of the encoder."),
    ):
        flags.DEFINE_integer(name, value, text, flag_values=flag_values)
    flags.DEFINE_string(
        "lift",
        None,
        "Directory of a BERT to begin with, whose vocabulary, width and number "
        "of layers are taken.",
        flag_values=flag_values,
    )
    for command in ("lift", "pretrain", "train"):
        flags.DEFINE_multi_string(
            f"{command}_option",
            [],
            f"A further flag of {command}.",
            flag_values=flag_values,
        )
    for name, value, text in (
        ("learning_rate", 1e-3, "The highest."),
        ("fact_prior", 0.5, "See `HotpotQAModelOptions`."),
        ("fact_threshold", 0.5, "See `HotpotQAOptions`."),
    ):
        flags.DEFINE_float(name, value, text, flag_values=flag_values)


def augment(
    records: Sequence[HotpotQARecord],
    copies: int,
    pseudo_questions: int,
    max_characters: int,
    seed: int,
) -> list[HotpotQARecord]:
    """Training records with chosen paragraphs, and pseudo-questions.

    Args:
        records: the records.
        copies: of each; 0 for the records themselves.
        pseudo_questions: how many, the same number of each record.
        max_characters: see `augmentation.choose_paragraphs`.
        seed: of what is chosen.

    Returns:
        The records to learn from, in random order. Their ids are new.

    Raises:
        ValueError: there is nothing to make questions of.
    """
    rng = random.Random(seed)

    def shorten(record):
        return augmentation.choose_paragraphs(record, max_characters, rng)

    made = [shorten(x) for x in records for _ in range(copies)] or [*records]
    wanted = len(made) + pseudo_questions
    texts = [msgspec.structs.replace(x, supporting_facts=None) for x in records]
    while len(made) < wanted:
        asked = [
            augmentation.make_pseudo_question(shorten(x), rng) for x in texts
        ]
        if not any(asked):
            raise ValueError("No record has sentences to make questions of.")
        made.extend(filter(None, asked))
    made = rng.sample(made[:wanted], wanted)
    return [
        msgspec.structs.replace(x, id=f"{i}-{x.id}") for i, x in enumerate(made)
    ]


def _pretrain(values: flags.FlagValues, path, init: Sequence[str]) -> str:
    """Pre-trains on the texts of the training records; returns the run."""
    texts = {}
    for file in values.train:
        for record in FORMAT.read(file):
            for paragraph in record.context:
                text = "".join(paragraph.sentences)
                texts[text] = f"{paragraph.title}\n\n{text}"
    with open(path("texts.jsonl"), "w", encoding="utf-8") as stream:
        stream.writelines(
            json.dumps({"text": x}) + "\n" for x in texts.values()
        )
    inputs = [path("texts.jsonl"), values.pretrain_text]
    training_runs.run_command(
        "preprocess",
        "--task=pretrain",
        f"--input={','.join(filter(None, inputs))}",
        f"--vocab_file={path('lifted/vocab.txt')}",
        f"--output_dir={path('texts')}",
        f"--long_length={values.long_length}",
        f"--global_length={values.long_length // 9}",
        # Paragraphs are short.
        "--min_sentences=3",
        "--num_shards=4",
    )
    data = {
        "input_path": path("texts"),
        "global_batch_size": values.batch_size,
    }
    training_runs.train(
        path("pretrained"),
        "etc/pretrain",
        {"train_data": data},
        training_runs.make_trainer(
            values.pretrain_steps, values.learning_rate, interval=50
        ),
        ["--mode=train", *init, *values.pretrain_option],
    )
    return path("pretrained")


def train_and_evaluate(
    values: flags.FlagValues, directory: str
) -> dict[str, float]:
    """Trains the model and measures it.

    Args:
        values: the flags.
        directory: where everything is written.

    Returns:
        The metrics of `evaluate`.
    """

    def path(name):
        return os.path.join(directory, name)

    records = augment(
        [x for file in values.train for x in FORMAT.read(file)],
        values.copies,
        values.pseudo_questions,
        int(_CHARACTERS_PER_TOKEN * values.long_length),
        values.seed,
    )
    with open(path("train.json"), "wb") as stream:
        stream.write(msgspec.json.encode(records))
    vocab_file, init = values.vocab_file, []
    if values.lift:
        training_runs.run_command(
            "lift",
            f"--from={values.lift}",
            f"--output_dir={path('lifted')}",
            "--local_radius=84",
            *values.lift_option,
        )
        vocab_file = path("lifted/vocab.txt")
        init = [f"--init_checkpoint={path('lifted')}"]
    evaluated_length = values.evaluated_length or values.long_length
    for file, split, length in (
        (path("train.json"), "train", values.long_length),
        (values.dev, "dev", evaluated_length),
    ):
        training_runs.run_command(
            "preprocess",
            "--task=hotpotqa",
            f"--input={file}",
            f"--split={split}",
            f"--vocab_file={vocab_file}",
            f"--output_dir={path(split)}",
            f"--long_length={length}",
            f"--global_length={_GLOBAL_LENGTH}",
            "--num_shards=4",
        )
    model = {"supporting_fact_prior": values.fact_prior}
    if values.pretrain_steps:
        init = [f"--init_checkpoint={_pretrain(values, path, init)}"]
    if not init:
        model["encoder"] = {
            "preset": "tiny",
            "hidden_size": values.hidden_size,
            "num_hidden_layers": values.layers,
            "num_attention_heads": 4,
            "intermediate_size": 4 * values.hidden_size,
            "local_radius": 32,
        }
    data = {
        f"{name}_data": {"global_batch_size": values.batch_size}
        for name in ("train", "validation")
    }
    data["train_data"]["input_path"] = path("train")
    training_runs.train(
        path("run"),
        "etc/hotpotqa",
        {
            **data,
            "model": model,
            "supporting_fact_threshold": values.fact_threshold,
        },
        training_runs.make_trainer(
            values.steps, values.learning_rate, interval=50
        ),
        [
            "--mode=train",
            f"--seed={values.seed}",
            *init,
            *values.train_option,
        ],
    )
    training_runs.run_command(
        "evaluate",
        f"--model_dir={path('run')}",
        f"--validation_data={path('dev')}",
        f"--params_override=task.model.long_length={evaluated_length}",
        f"--output={path('metrics.json')}",
    )
    with open(path("metrics.json"), encoding="utf-8") as stream:
        return json.load(stream)


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
    train = [x for file in values.train for x in FORMAT.read(file)]
    dev = list(FORMAT.read(values.dev))
    rows = measure_baselines(train, dev)
    print_table(rows)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        result = train_and_evaluate(values, directory)
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
    cli.prepare_environment()
    define_flags(flags.FLAGS)
    flags.mark_flags_as_required(["train", "dev"])
    flags.mark_flags_as_mutual_exclusive(["vocab_file", "lift"], required=True)
    flags.register_multi_flags_validator(
        ["pretrain_steps", "lift"],
        lambda x: x["lift"] or not x["pretrain_steps"],
        "--pretrain_steps is of a model that is lifted.",
    )
    app.run(main)
