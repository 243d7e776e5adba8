"""Shared code of tests: suites, references, a toy task. Not installed."""
