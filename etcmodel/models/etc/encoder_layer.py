"""Base classes of the encoders."""

import copy
import functools
import inspect
from collections.abc import Callable
from collections.abc import Mapping

import tensorflow as tf

from etcmodel.layers import embedding
from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat
from etcmodel.layers import normalization
from etcmodel.models import json_config
from etcmodel.ops import checks
from etcmodel.ops import shapes


def accepts_dict(call: Callable) -> Callable:
    """Lets `call` take a dict of its arguments as the first argument.

    Values in the dict override arguments that are passed separately.
    """
    signature = inspect.signature(call)
    first_input = list(signature.parameters)[1]

    @functools.wraps(call)
    def wrapper(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        if isinstance(given[first_input], Mapping):
            given |= given.pop(first_input)
        return call(**given)

    # Keras 2 does not inspect the wrapped function.
    wrapper.__signature__ = signature
    wrapper.dict_input = first_input
    return wrapper


def check_outputs(outputs, expected) -> None:
    """Raises a ValueError unless `outputs` are a subset of `expected`."""
    if not outputs or not set(outputs) <= set(expected):
        raise ValueError(
            f"outputs is {outputs!r}. Expected one or more of {expected}."
        )


def functional(inputs, made, outputs, name: str) -> tf.keras.Model:
    """Builds a functional model from a dict of inputs to a dict of outputs."""
    return tf.keras.Model(
        inputs, {output: getattr(made, output) for output in outputs}, name=name
    )


class ConfiguredLayer(graph_layer.GraphLayer):
    """A layer whose sizes come from a copied and validated configuration."""

    config_class = json_config.JsonConfig

    def __init__(
        self,
        config: json_config.JsonConfig,
        use_one_hot_embeddings: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        config.validate()
        self.config = copy.deepcopy(config)
        self.use_one_hot_embeddings = use_one_hot_embeddings

    def _make_lookup(self, name, vocab_size, **options):
        return embedding.EmbeddingLookup(
            vocab_size=vocab_size,
            initializer_range=self.config.initializer_range,
            dtype=self.dtype_policy,
            name=name,
            **{
                "embedding_size": self.config.hidden_size,
                "use_one_hot_lookup": self.use_one_hot_embeddings,
                **options,
            },
        )

    def _make_token_lookup(self):
        return self._make_lookup(
            "token_emb_lookup",
            self.config.vocab_size,
            embedding_size=self.config.embedding_size
            or self.config.hidden_size,
            projection_size=self.config.hidden_size,
        )

    def _make_norm(self, name):
        return normalization.LayerNormalization(
            epsilon=1e-12, dtype=self.dtype_policy, name=name
        )

    def _make_dense(self, name, **options):
        return tf.keras.layers.Dense(
            self.config.hidden_size,
            kernel_initializer=tf.keras.initializers.TruncatedNormal(
                stddev=self.config.initializer_range
            ),
            dtype=self.dtype_policy,
            name=name,
            **options,
        )

    def _first_positions(self, token_ids, limit, limit_name):
        """Returns 0, 1, 2, ..., `<int32>[1, length]`; checks the length."""
        length = shapes.get_shape_list(token_ids)[1]
        advice = f"Cut the input, or configure a larger {limit_name}."
        if isinstance(length, int) and length > limit:
            raise ValueError(
                f"{self.name}: an input of {length} tokens has more than the "
                f"{limit} positions of {limit_name}. {advice}"
            )
        if not isinstance(length, int):
            too_long = checks.Check(
                "The length of the input",
                f"expected at most {limit} tokens ({limit_name})",
                [length > limit],
                [length],
            )
            (length,) = checks.guard([too_long], advice, length)
        # XLA ignores assertions, but it knows all sizes: an out-of-range slice
        # fails when XLA compiles it.
        return tf.slice(
            tf.range(limit), [0], [length], name=f"input_within_{limit_name}"
        )[tf.newaxis]

    def get_config(self):
        """Returns the configuration and the options of Keras's layer."""
        # In Keras 2, a model's own config lacks the name and the dtype.
        options = tf.keras.layers.Layer.get_config(self)
        return {
            **options,
            "config": self.config.to_dict(),
            "use_one_hot_embeddings": self.use_one_hot_embeddings,
        }

    @classmethod
    def from_config(cls, config):
        """Makes the layer from its config."""
        config = dict(config)
        config["config"] = cls.config_class.from_dict(config["config"])
        return cls(**config)


class EncoderLayer(ConfiguredLayer, tf.keras.Model):
    """A token encoder that is both a layer and a Keras model.

    Its inputs are the arguments of `call` or, as in `fit` and `predict`, a dict
    of these arguments. The configuration alone determines the weights.

    Attributes:
        token_emb_lookup: the `EmbeddingLookup` of tokens.
        added_layers: layers that checkpoints from other tasks may lack.
    """

    added_layers = ()

    # Without this, Keras 3 traces a call with only the first argument whenever
    # TensorFlow saves an object that contains the model.
    _default_save_signature = None

    def __call__(self, *args, **kwargs):
        """Calls the layer; the first input may be a dict of all inputs."""
        name = getattr(type(self).call, "dict_input", None)
        if not args and name in kwargs:
            args = (kwargs.pop(name),)
        if name and args and isinstance(args[0], Mapping):
            options = keras_compat.options_in(args[0])
            tensors = {k: v for k, v in args[0].items() if k not in options}
            return super().__call__(tensors, *args[1:], **kwargs | options)
        return super().__call__(*args, **kwargs)

    def build(self, input_shape):
        """Completes a subclass's `build`; ignores the shape."""
        # `Model.build` would call the model with inputs that it makes up.
        tf.keras.layers.Layer.build(self, input_shape)

    def get_build_config(self):
        """Returns the input shape for `build_from_config`."""
        return {"input_shape": None} if self.built else None

    def build_from_config(self, config):
        """Builds a model while it is loaded from a file."""
        self.build(config["input_shape"])

    def _compared(self, output):
        """Returns the part of the output that `fit` compares with targets."""
        return output

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, **kwargs
    ):
        """Computes the loss in `fit` from the output that has targets."""
        return super().compute_loss(
            x, y, self._compared(y_pred), sample_weight, **kwargs
        )

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Computes the metrics in `fit` from the output that has targets."""
        return super().compute_metrics(
            x, y, self._compared(y_pred), sample_weight
        )

    def get_token_embedding_table(self):
        """Returns the `<float32>[vocab_size, embedding_size]` variable.

        Raises:
            ValueError: the model is not built.
        """
        if not self.built:
            raise ValueError(
                f"{self.name}: the embedding table exists once the model is "
                "built. Call the model, or its `build`, first."
            )
        return self.token_emb_lookup.embedding_table
