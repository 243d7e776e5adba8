"""Natural Questions: finds long and short answers in Wikipedia pages."""
