"""Checks that every layer must pass, over tables of layers."""
