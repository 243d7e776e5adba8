"""Natural Questions: find long and short answers in Wikipedia pages."""
