"""The commands of `python -m etcmodel`."""
