"""Raw text: tokenizers, sentences, mentions and pages."""
