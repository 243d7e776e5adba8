"""Registers the package's classes with Keras without importing them."""

import wrapt

# Module of this package -> classes that it registers as serializable.
SERIALIZABLE = {
    "layers.activations": ("exact_gelu", "tanh_gelu"),
    "layers.dense_layers": ("DenseLayers",),
    "layers.dropout": ("RecomputingDropout",),
    "layers.embedding": ("EmbeddingLookup",),
    "layers.fused_attention": ("FusedGlobalLocalAttention",),
    "layers.fused_side_attention": ("FusedSideAttention",),
    "layers.local_attention": ("QkvRelativeLocalAttention",),
    "layers.normalization": ("LayerNormalization",),
    "layers.relative_attention": (
        "ProjectAttentionHeads",
        "QkvRelativeAttention",
        "RelativeAttention",
    ),
    "layers.relative_transformer": ("RelativeTransformerLayers",),
    "layers.residual_block": ("ResidualBlock",),
    "layers.side_attention": ("SideAttention",),
    "layers.side_transformer": ("TransformerWithSideInputLayers",),
    "layers.transformer": ("GlobalLocalTransformerLayers",),
    "models.etc.contrastive_loss": ("BatchContrastiveLoss",),
    "models.etc.etc_model": ("EtcModel",),
    "models.etc.side_inputs": ("SideInputs",),
    "models.etc.structured_etc_model": ("StructuredEtcModel",),
    "models.heads": ("GlobalChoiceHead",),
    "models.pretraining_heads": ("LanguageModelHead",),
    "models.read_twice.coreference_loss": ("BatchCoreferenceResolutionLoss",),
    "models.read_twice.decoder": ("ReadTwiceDecoderModel",),
    "models.read_twice.memory_extraction": ("SummaryExtraction",),
    "models.read_twice.read_twice_model": ("ReadTwiceModel",),
    "models.span_prediction": ("SpanPredictionHead",),
    "tasks.documents.span_model": ("SpanAnswerHead",),
    "tasks.classify.model": ("DocumentHead",),
    "tasks.classify.standardization": ("RunningStandardization",),
    "tasks.nq.model": ("NQHead",),
    "tasks.openkp.layers": ("NgramHead", "VisualEmbedding"),
    "tasks.select.model": ("SelectionHead",),
}


def register_lazily() -> None:
    """Makes `.keras` files loadable after `import etcmodel` alone.

    Imports neither TensorFlow nor this package's modules. When Keras 2 or
    Keras 3 is imported, its registry of custom objects gets a proxy for each
    class. The proxy imports the class when a file contains it.
    """
    for keras in ("keras", "tf_keras"):
        wrapt.register_post_import_hook(_add_proxies, keras)


def _add_proxies(keras) -> None:
    """Adds proxies to a Keras module's registry, without replacing entries."""
    package = __name__.rpartition(".")[0]
    objects = keras.utils.get_custom_objects()
    for module, names in SERIALIZABLE.items():
        for name in names:
            objects.setdefault(
                f"{package}>{name}",
                wrapt.lazy_import(f"{package}.{module}", name),
            )
