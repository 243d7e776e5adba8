"""Datasets: their records, gold answers, prediction files and metrics.

Datasets do not depend on models. Each dataset is a module or a package with

*   `FORMAT`: reads the official files as typed records, see
    `readers.records.Format`;
*   `gold`: returns the gold answer of a record;
*   `write_predictions`: writes the official prediction file;
*   `score`: computes the official metrics.
"""

from etcmodel import extras

extras.require("ijson", "msgspec")
