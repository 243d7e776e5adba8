"""Pre-training of ReadTwice: masked tokens and entities that come again."""
