"""Pre-training of ReadTwice: masked tokens and coreferent mentions."""
