"""Random logits of documents, and a reference for their answers."""

import numpy as np
import tensorflow as tf


def logit_names(encoding):
    answer = (
        ["answer_bio_logits"]
        if encoding == "bio"
        else ["answer_begin_logits", "answer_end_logits"]
    )
    return {"supporting_fact_logits", "answer_type_logits", *answer}


_WORDS = ["a", "of", "Zürich", "日本", "naïve", "x-y", "1,000", "Ω"]
LONG, GLOBAL = 70, 24


def _random_record(rng, num_paragraphs):
    """Returns a record with texts, as the layout engine returns it.

    Some titles and sentences are empty or have no tokens, and some do not fit
    into the input.
    """
    words = [int(n) for n in rng.integers(1, 4, size=2)]
    types = [1] + [3] * words[0]
    sentences = [-1, *range(1, words[0] + 1)]
    starts, ends = [-1] * len(types), [-1] * len(types)
    cuts = [0] * len(types)
    global_units = [-1] * len(types)
    units, sizes = [], []
    for _ in range(num_paragraphs):
        global_units.append(-1)
        sizes.append(int(rng.integers(1, 4)))
        for place in range(sizes[-1]):
            text = b"" if place == 0 or rng.random() < 0.5 else b" "
            tokens = []
            for _ in range(int(rng.integers(-2, 8))):
                word = rng.choice(_WORDS).encode("utf-8")
                tokens.append((len(text), len(text) + len(word)))
                text += word + b" "
            units.append(text)
            if rng.random() < 0.1:  # It does not fit into the input.
                continue
            for number, (start, end) in enumerate(tokens):
                types.append(2 if place == 0 else 1)
                joins = number > 0 and rng.random() < 0.3
                cuts.append(int(joins))
                cuts[-2] += 2 * joins
                sentences.append(len(global_units))
                starts.append(start)
                ends.append(end)
            global_units.append(len(units) - 1)
    return {
        "types": types,
        "sentences": sentences,
        "starts": starts,
        "ends": ends,
        "cuts": cuts,
        "global_units": global_units,
        "units": units,
        "sizes": sizes,
    }


def _dense(records, name, length, pad=-1):
    rows = np.full([len(records), length], pad, np.int32)
    for row, record in zip(rows, records, strict=True):
        row[: len(record[name])] = record[name]
    return tf.constant(rows)


def inputs_of(records, long_length=LONG, global_length=GLOBAL):
    features = {
        "long_token_type_ids": _dense(records, "types", long_length, pad=0),
        "long_sentence_ids": _dense(records, "sentences", long_length),
    }
    context = {
        "global_units": _dense(records, "global_units", global_length),
        "long_starts": _dense(records, "starts", long_length),
        "long_ends": _dense(records, "ends", long_length),
        "long_word_cuts": _dense(records, "cuts", long_length, pad=0),
    }
    text = {
        name: tf.ragged.constant([record[name] for record in records], dtype, 1)
        for name, dtype in (("units", tf.string), ("sizes", tf.int32))
    }
    text["paragraph_sizes"] = text.pop("sizes")
    return features, context, text


def _softmax(values):
    exponents = np.exp(values - values.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def _sigmoid(values):
    return 1 / (1 + np.exp(-values))


def find_runs(labels, sentences):
    """Returns the first and the last token of every run of BIO labels."""
    runs = []
    is_open = False
    for i, (label, sentence) in enumerate(zip(labels, sentences, strict=True)):
        if label == 2 or sentence < 0:
            is_open = False
        elif label == 0 or not is_open or sentence != sentences[i - 1]:
            runs.append((i, i))
            is_open = True
        else:
            runs[-1] = (runs[-1][0], i)
    return runs


def _candidates(logits, i, types, sentences, cuts, max_answer_length):
    """Yields spans of record i: (rank, begin, end, probability, sentence)."""
    # For each token, the first and the last token of its word.
    firsts, lasts = [], []
    for j, cut in enumerate(cuts):
        firsts.append(firsts[-1] if cut % 2 else j)
    for j, cut in reversed(list(enumerate(cuts))):
        lasts.insert(0, lasts[0] if cut >= 2 else j)
    text = [
        t in (1, 2) and s >= 0 for t, s in zip(types, sentences, strict=True)
    ]
    if "answer_bio_logits" in logits:
        p = logits["answer_bio_logits"][i][: len(types)].astype(np.float64)
        p = _softmax(p)
        inside = [s if t else -1 for s, t in zip(sentences, text, strict=True)]
        labels = p.argmax(-1)[firsts]
        labels[(labels == 0) & (firsts != np.arange(len(types)))] = 1
        for begin, end in find_runs(labels.tolist(), inside):
            if end - begin < max_answer_length:
                mean = p.max(-1)[begin : end + 1].mean()
                yield (0, mean), begin, end, mean, sentences[begin]
        for j in np.flatnonzero(text).tolist():
            if firsts[j] == j:
                yield (-1, p[j, 0]), j, lasts[j], p[j, 0], sentences[j]
        return
    begin_p, end_p = (
        _softmax(logits[f"answer_{name}_logits"][i].astype(np.float64))
        for name in ("begin", "end")
    )
    for begin in range(len(types)):
        for end in range(begin, len(types)):
            if (
                text[begin]
                and text[end]
                and sentences[begin] == sentences[end]
                and end - begin + 1 <= max_answer_length
            ):
                p = begin_p[begin] * end_p[end]
                parts = (firsts[begin] < begin) + (lasts[end] > end)
                yield (-parts, p), begin, end, p, sentences[begin]


def _best_span(logits, i, record, threshold, max_answer_length):
    """Compares all spans; returns the best text and probability, or None."""
    facts = _sigmoid(logits["supporting_fact_logits"][i].astype(np.float64))
    spans = list(
        _candidates(
            logits,
            i,
            record["types"],
            record["sentences"],
            record["cuts"],
            max_answer_length,
        )
    )
    if not spans:
        return None
    if threshold is None:
        spans = [
            ((rank, value * facts[span[-1]]), *span)
            for (rank, value), *span in spans
        ]
    chosen = [span for span in spans if facts[span[4]] >= (threshold or 0.0)]
    if not chosen:
        best = max(facts[span[4]] for span in spans)
        chosen = [span for span in spans if facts[span[4]] == best]
    _, begin, end, probability, sentence = max(chosen, key=lambda x: x[0])
    text = record["units"][record["global_units"][sentence]]
    return text[record["starts"][begin] : record["ends"][end]], probability


def reference_answer(logits, i, record, threshold, max_answer_length):
    """Returns the answer's type, text and probability, in plain Python."""
    kinds = _softmax(logits["answer_type_logits"][i].astype(np.float64))
    kind = int(kinds.argmax())
    span = _best_span(logits, i, record, threshold, max_answer_length)
    text, probability = [span or (b"", 0.0), (b"yes", 1.0), (b"no", 1.0)][kind]
    given = 3 if kind == 0 and span is None else kind
    return given, text, kinds[kind] * probability


def reference_facts(logits, i, record):
    """Returns (paragraph, sentence) -> probability for sentences with text."""
    places = [
        (paragraph, place)
        for paragraph, size in enumerate(record["sizes"])
        for place in range(size)
    ]
    return {
        (places[segment][0], places[segment][1] - 1): _sigmoid(
            logits["supporting_fact_logits"][i, j]
        )
        for j, segment in enumerate(record["global_units"])
        if segment >= 0 and places[segment][1] and record["units"][segment]
    }


def _random_logits(
    rng, records, encoding, long_length=LONG, global_length=GLOBAL
):
    size = len(records)
    logits = {
        "supporting_fact_logits": rng.normal(size=[size, global_length]),
        # Most answers are spans.
        "answer_type_logits": rng.normal(size=[size, 3]) + [2, 0, 0],
    }
    if encoding == "bio":
        shape = [size, long_length, 3]
        logits["answer_bio_logits"] = 2 * rng.normal(size=shape)
    else:
        for name in ("begin", "end"):
            values = 2 * rng.normal(size=[size, long_length])
            for row, record in zip(values, records, strict=True):
                row[len(record["types"]) :] = -1e4
            logits[f"answer_{name}_logits"] = values
    return {name: x.astype(np.float32) for name, x in logits.items()}


def random_batch(seed, encoding):
    rng = np.random.default_rng(seed)
    # The last record has no text.
    records = [_random_record(rng, n) for n in (1, 2, 3, 2, 3, 1, 0)]
    assert max(len(record["types"]) for record in records) <= LONG
    return records, _random_logits(rng, records, encoding)
