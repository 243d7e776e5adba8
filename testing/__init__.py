"""What tests share: test suites, references, a toy task. Not installed."""
