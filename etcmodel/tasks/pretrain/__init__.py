"""Pre-training of ETC: masked words and masked sentences of long texts."""
