"""Code that tests share, such as references and sample data. Not installed."""
