"""Checks that every Keras layer must pass, and tables of layers to check."""
