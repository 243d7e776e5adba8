"""Baselines with a plain BERT: mean vectors, and extractive QA on windows.

The encoder, the span head, and the code that makes SQuAD's windows and decodes
answers come from the Model Garden, which needs Keras 2.
"""

import types
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from etcmodel.training import configuration  # noqa: F401  First: it explains Keras 3.

# isort: split
import numpy as np
import tensorflow as tf
from official.modeling.optimization import lr_schedule
from official.nlp.data import squad_lib
from official.nlp.modeling import models
from official.nlp.modeling import networks
from official.nlp.tools import tokenization

from etcmodel.checkpoints import Bert

# Dense layers of the attention, in the Model Garden's order.
_DENSE = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
)
# Input of the encoder -> name of this feature in the Model Garden's windows.
_INPUTS = {
    "input_word_ids": "input_ids",
    "input_mask": "input_mask",
    "input_type_ids": "segment_ids",
}
_MAX_QUERY = 64
_STRIDE = 128
_MAX_ANSWER = 30


def make_encoder(source: Bert) -> tf.keras.layers.Layer:
    """Makes a Model Garden encoder with the weights of a BERT."""
    sizes = source.sizes
    encoder = networks.BertEncoderV2(
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["hidden_size"],
        num_layers=sizes["num_hidden_layers"],
        num_attention_heads=sizes["num_attention_heads"],
        inner_dim=sizes["intermediate_size"],
        inner_activation=lambda x: tf.keras.activations.gelu(
            x, approximate=sizes["hidden_act"] == "gelu"
        ),
        max_sequence_length=len(
            source.weights["embeddings.position_embeddings"]
        ),
        type_vocab_size=len(source.weights["embeddings.token_type_embeddings"]),
    )
    encoder(_inputs(np.zeros([1, 2], np.int32)))
    names = _names(sizes["num_hidden_layers"])
    weights = encoder.get_weights()
    # The pooler comes last and is not used, so it keeps its random weights.
    weights[: len(names)] = [
        source.weights[name].reshape(weight.shape)
        for name, weight in zip(names, weights, strict=False)
    ]
    encoder.set_weights(weights)
    return encoder


def _names(num_layers: int) -> list[str]:
    """Returns the names of BERT's weights in the order of the encoder."""
    embeddings = ("word", "position", "token_type")
    names = [f"embeddings.{x}_embeddings" for x in embeddings]
    names += _norm("embeddings.LayerNorm")
    for i in range(num_layers):
        layer = [*_dense(*_DENSE), *_norm("attention.output.LayerNorm")]
        layer += [*_dense("intermediate.dense", "output.dense")]
        layer += _norm("output.LayerNorm")
        names += [f"encoder.layer.{i}.{x}" for x in layer]
    return names


def _norm(name: str) -> list[str]:
    return [f"{name}.gamma", f"{name}.beta"]


def _dense(*names: str) -> list[str]:
    return [f"{name}.{x}" for name in names for x in ("kernel", "bias")]


def _inputs(ids) -> dict[str, tf.Tensor]:
    """Makes the encoder's inputs from padded ids `<int>[batch, length]`."""
    ids = tf.convert_to_tensor(ids)
    return {
        "input_word_ids": ids,
        "input_mask": tf.cast(ids != 0, tf.int32),
        "input_type_ids": tf.zeros_like(ids),
    }


def mean_vectors(
    source: Bert, texts: Sequence[str], size: int = 256
) -> np.ndarray:
    """Returns each layer's vectors of texts: means over chunks' mean vectors.

    Args:
        source: the BERT.
        texts: texts to split into chunks.
        size: number of tokens per chunk, with `[CLS]` and `[SEP]`.

    Returns:
        Vectors `<float32>[layers, texts, hidden]`, from the first layer on.
    """
    encoder, tokenizer = make_encoder(source), _tokenizer(source)
    # [layers, chunks, longest, hidden]
    encode = tf.function(
        lambda x: tf.stack(encoder(_inputs(x))["encoder_outputs"]),
        reduce_retracing=True,
    )
    cls, sep = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    vectors = []
    for text in texts:
        ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
        chunks = [
            [cls, *ids[i : i + size - 2], sep]
            for i in range(0, len(ids), size - 2)
        ]
        # [chunks, longest]
        padded = tf.ragged.constant(chunks, tf.int32).to_tensor()
        mask = tf.cast(padded != 0, tf.float32)[..., tf.newaxis]
        # [layers, chunks, hidden]
        sums = tf.reduce_sum(encode(padded) * mask, axis=2)
        means = sums / tf.reduce_sum(mask, axis=1)
        vectors.append(tf.reduce_mean(means, axis=1))
    return np.stack(vectors, axis=1)


def _tokenizer(source: Bert) -> tokenization.FullTokenizer:
    return tokenization.FullTokenizer(source.vocab_file, do_lower_case=True)


def read_squad(
    source: Bert,
    train_file: str,
    dev_file: str,
    *,
    epochs: float,
    learning_rate: float,
    batch_size: int = 16,
    length: int = 384,
    seed: int = 0,
) -> dict[str, str]:
    """Trains extractive QA on windows of a text; returns id -> answer.

    The optimizer is AdamW, with warm-up for a tenth of the steps and then
    linear decay to 0.

    Args:
        source: the BERT with the initial weights.
        train_file: training questions in SQuAD's format, one answer each.
        dev_file: questions to answer, in SQuAD's format.
        epochs: passes over the windows.
        learning_rate: peak learning rate.
        batch_size: number of windows per step.
        length: number of tokens per window, with the question.
        seed: seed of weights, order and dropout.
    """
    tf.keras.utils.set_random_seed(seed)
    tokenizer = _tokenizer(source)
    _, features = _windows(train_file, tokenizer, length, True)
    rng = np.random.default_rng(seed)
    batches = tf.data.Dataset.from_generator(
        lambda: _batches(features, batch_size, rng),
        output_signature=(
            {x: tf.TensorSpec([None, None], tf.int32) for x in _INPUTS},
            (tf.TensorSpec([None], tf.int32),) * 2,
        ),
    )
    steps = int(epochs * len(features) / batch_size)
    schedule = lr_schedule.LinearWarmup(
        tf.keras.optimizers.schedules.PolynomialDecay(
            learning_rate, steps, end_learning_rate=0.0
        ),
        warmup_steps=max(steps // 10, 1),
        warmup_learning_rate=0.0,
    )
    model = models.BertSpanLabeler(make_encoder(source), output="logits")
    model.compile(
        tf.keras.optimizers.AdamW(schedule, weight_decay=0.01),
        loss=[_loss, _loss],
        loss_weights=[0.5, 0.5],
    )
    model.fit(batches.repeat(), steps_per_epoch=steps, verbose=2)
    return _answer(model, dev_file, tokenizer, length)


def _loss(position, logits):
    """Computes the cross-entropy of a position in float32."""
    return tf.keras.losses.sparse_categorical_crossentropy(
        position, tf.cast(logits, tf.float32), from_logits=True
    )


def _windows(file: str, tokenizer, length: int, is_training: bool):
    """Returns SQuAD's examples and their windows."""
    examples = squad_lib.read_squad_examples(file, is_training, False)
    features: list[Any] = []
    squad_lib.convert_examples_to_features(
        examples,
        tokenizer,
        *(length, _STRIDE, _MAX_QUERY, is_training),
        lambda feature, is_padding=False: features.append(feature),
        # A larger size would add windows to fill the last batch.
        batch_size=1,
    )
    return examples, features


def _batches(features, size: int, rng) -> Iterator[tuple]:
    """Yields batches of windows of similar length, in random order.

    A batch is a pair: the inputs from `_inputs_of`, and the positions of the
    first and the last token of each answer, `<int32>[size]` each.
    """
    lengths = [sum(x.input_mask) for x in features]
    order = np.argsort(np.array(lengths) + rng.uniform(0, 40, len(lengths)))
    batches = [order[i : i + size] for i in range(0, len(order), size)]
    rng.shuffle(batches)
    for batch in batches:
        group = [features[i] for i in batch]
        yield (
            _inputs_of(group),
            (
                [x.start_position for x in group],
                [x.end_position for x in group],
            ),
        )


def _inputs_of(features) -> dict[str, np.ndarray]:
    """Stacks windows without common padding: `<int32>[windows, longest]`."""
    longest = max(sum(x.input_mask) for x in features)
    return {
        name: np.array([getattr(x, key) for x in features], np.int32)[
            :, :longest
        ]
        for name, key in _INPUTS.items()
    }


def _answer(model, file, tokenizer, length) -> dict[str, str]:
    """Returns question id -> best span over all windows of the question."""
    examples, features = _windows(file, tokenizer, length, False)
    predict = tf.function(lambda x: model(x, training=False))
    results = []
    for i in range(0, len(features), 32):
        group = features[i : i + 32]
        logits = predict(_inputs_of(group))
        starts, ends = (tf.cast(x, tf.float32) for x in logits)
        results += [
            types.SimpleNamespace(
                unique_id=feature.unique_id,
                start_logits=start.tolist(),
                end_logits=end.tolist(),
            )
            for feature, start, end in zip(
                group, starts.numpy(), ends.numpy(), strict=True
            )
        ]
    answers, _, _ = squad_lib.postprocess_output(
        *(examples, features, results), 20, _MAX_ANSWER, True
    )
    return dict(answers)
