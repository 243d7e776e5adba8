"""What the encoders, as layers, have in common: a configuration."""

import copy

from etcmodel.layers import graph_layer
from etcmodel.models import json_config


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
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config):
        """Makes the layer from its config."""
        config = dict(config)
        config["config"] = cls.config_class.from_dict(config["config"])
        return cls(**config)


class EncoderLayer(ConfiguredLayer):
    """An encoder of tokens.

    Attributes:
        token_emb_lookup: the `EmbeddingLookup` of tokens.
    """

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
