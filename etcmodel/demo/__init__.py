"""The embedded default: a generated corpus, and a small ETC trained on it."""
