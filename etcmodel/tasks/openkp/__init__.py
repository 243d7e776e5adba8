"""OpenKP: finds the keyphrases of a web page."""
