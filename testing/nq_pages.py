"""Pages of Natural Questions: a vocabulary, sizes and windows."""

from etcmodel.datasets.nq.records import FORMAT
from etcmodel.feature_utils import etc_features
from etcmodel.tasks.nq.task import NQPreprocessingConfig
from testing.helpers import real_data_path

# Each word contains its id: "t201" has the id 201.
VOCAB = [f"t{i}" for i in range(300)]
VOCAB[:6] = ["[PAD]", *(f"[unused{i}]" for i in range(5))]
VOCAB[100:104] = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB[107:109] = ["[unused102]", "[unused103]"]
VOCAB[250] = "##x"


def read_real_pages():
    """Reads the records of two files of real pages."""
    return [
        record
        for name in ("00", "01")
        for record in FORMAT.read(
            real_data_path(f"nq/nq-train-{name}.jsonl.gz")
        )
    ]


def make_config(long_length, stride, question_length, **more):
    return NQPreprocessingConfig(
        long_length=long_length,
        stride=stride,
        question_length=question_length,
        **{"global_length": 8, **more},
    )


def plain_windows(question, pieces, special, config):
    """Computes the windows of a page as described in the paper.

    Args:
        question: the question's token ids.
        pieces: a tuple (token id, word, candidate) for each token of the page.
        special: name -> id of special tokens.
        config: the preprocessing configuration.

    Returns:
        For each window, a dict of its features and `words`, as lists.
    """
    question = question[: config.question_length]
    room = config.long_length - len(question) - 3
    made = []
    # The original code has these start positions, too.
    for start in range(
        0, max(len(pieces) - room, 0) + config.stride, config.stride
    ):
        shown = pieces[start : start + room]
        cls, separator = special["cls"], special["separator"]
        ids = [cls, *question, separator, *(x[0] for x in shown), separator]
        types = [1] + [3] * (len(question) + 1) + [1] * len(shown) + [3]
        words = [-1] * (len(question) + 2) + [x[1] for x in shown]
        if config.fixed_block_size:
            links = [i // config.fixed_block_size for i in range(len(ids))]
            global_ids = [special["sentence"]] * (links[-1] + 1)
            global_types = [0] * len(global_ids)
        else:
            global_ids = [cls] + [special["question"]] * len(question)
            global_types = [8] + [5] * len(question)
            links = [*range(len(global_ids)), -1]
            last = None
            for _, _, candidate in shown:
                if candidate != last and len(global_ids) < config.global_length:
                    global_ids.append(special["sentence"])
                    global_types.append(0)
                last = candidate
                links.append(len(global_ids) - 1)
        values = {
            "words": words,
            "long_token_ids": ids,
            "long_token_type_ids": types,
            "long_sentence_ids": links,
            "long_paragraph_breakpoints": [0] * (len(ids) - 1) + [1],
            "global_token_ids": global_ids,
            "global_token_type_ids": global_types,
            "global_paragraph_breakpoints": [0] * (len(global_ids) - 1) + [1],
        }
        window = {}
        for name, pad in {"words": -1, **etc_features.FEATURES}.items():
            length = config.long_length
            if name in etc_features.GLOBAL_FEATURES:
                length = config.global_length
            value = values.get(name, [])
            window[name] = value + [pad] * (length - len(value))
        made.append(window)
    return made
