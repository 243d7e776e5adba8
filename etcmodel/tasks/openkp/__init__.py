"""OpenKP: find the keyphrases of a web page."""
