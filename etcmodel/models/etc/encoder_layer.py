"""What the encoders, as layers, have in common: a configuration."""

import copy
import functools
import inspect
from collections.abc import Callable
from collections.abc import Mapping

import tensorflow as tf

from etcmodel.layers import graph_layer
from etcmodel.models import json_config


def accepts_dict(call: Callable) -> Callable:
    """Lets the first input of a `call` be a dict of arguments by name.

    What the dict has overrides arguments that are given beside it.
    """
    signature = inspect.signature(call)
    first_input = list(signature.parameters)[1]

    @functools.wraps(call)
    def wrapper(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        if isinstance(given[first_input], Mapping):
            given |= given.pop(first_input)
        return call(**given)

    # Keras 2 does not look at what a function wraps.
    wrapper.__signature__ = signature
    return wrapper


class ConfiguredLayer(graph_layer.GraphLayer):
    """A layer whose sizes are those of a configuration.

    Attributes:
        config_class: class of its configuration.
        config: the configuration, a copy of the one given.

    Args:
        config: the configuration.
        **kwargs: passed to `tf.keras.layers.Layer`.

    Raises:
        ValueError: `config.validate` objects.
    """

    config_class = json_config.JsonConfig

    def __init__(self, config: json_config.JsonConfig, **kwargs):
        super().__init__(**kwargs)
        config.validate()
        self.config = copy.deepcopy(config)

    def get_config(self):
        """The configuration, and what `tf.keras.layers.Layer` has."""
        # That of a model is without a name and a dtype under Keras 2.
        options = tf.keras.layers.Layer.get_config(self)
        return {**options, "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config):
        """Makes the layer from its config."""
        config = dict(config)
        config["config"] = cls.config_class.from_dict(config["config"])
        return cls(**config)


class EncoderLayer(ConfiguredLayer, tf.keras.Model):
    """An encoder of tokens, a layer and a Keras model at once.

    Its inputs are arguments of a call, or, as `fit` and `predict` have it, a
    dict of them by their names. Everything is built from the configuration.

    Attributes:
        token_emb_lookup: the `EmbeddingLookup` of tokens.
        added_layers: what a use of the encoder adds to it, which checkpoints
            of others do not have.
    """

    added_layers = ()

    # Keras 3 would trace a call with the first of the arguments alone whenever
    # a model is inside of what TensorFlow saves.
    _default_save_signature = None

    def build(self, input_shape):
        """Ends what a subclass builds; the shape does not matter."""
        # That of a model would call it with inputs of its own.
        tf.keras.layers.Layer.build(self, input_shape)

    def get_build_config(self):
        """What a model that is read from a file is built with."""
        return {"input_shape": None} if self.built else None

    def build_from_config(self, config):
        """Builds the model as it was built when it was saved."""
        self.build(config["input_shape"])

    def get_token_embedding_table(self):
        """The token embeddings, for a head that predicts tokens.

        Returns:
            The variable, `<float32>[vocab_size, embedding_size]`.

        Raises:
            ValueError: the model is not built yet.
        """
        if not self.built:
            raise ValueError(
                f"{self.name}: the embedding table exists once the model is "
                "built; call the model, or its `build`, first"
            )
        return self.token_emb_lookup.embedding_table
