"""Code that tests share: references, sample data, a toy task. Not installed."""
