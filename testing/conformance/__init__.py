"""Checks that every Keras layer must pass, and their tables of layers."""
