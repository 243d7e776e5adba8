"""Datasets: their records, gold answers, prediction files and metrics.

Datasets do not depend on models. Each dataset is a module or a package with

*   `FORMAT`: reads the official files as typed records, see
    `readers.records.Format`;
*   `gold`: returns the gold answer of a record;
*   `write_predictions`: writes the official prediction file;
*   `score`: computes the official metrics;
*   `notes` (optional): returns sentences for the user about the metrics of
    `score`, such as that a model has not learned.
"""

from etcmodel import extras

extras.require("ijson", "msgspec")
