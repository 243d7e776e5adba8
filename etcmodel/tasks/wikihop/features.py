"""WikiHop: raw strings to EtcFeatures (early signature)."""

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class WikiHopFeatureConfig:
    """Sizes."""

    long_length: int = 4096
    global_length: int = 430
    max_num_sentences: int = 200


class WikiHopFeatureBuilder(tf.Module):
    """`builder(query, candidates, supports)` -> EtcFeatures dict."""

    def __init__(self, config, tokenizer, name=None):
        super().__init__(name=name)
        self.config = config
        self.tokenizer = tokenizer

    def build(self, query, candidates, supports):
        """Returns (features, stats)."""
        raise NotImplementedError

    def __call__(self, query, candidates, supports):
        """Returns features."""
        return self.build(query, candidates, supports)[0]
