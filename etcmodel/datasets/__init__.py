"""Official datasets: their records, gold answers, predictions and scores.

A dataset knows no model. Each is a module, or a folder, with

*   `FORMAT`: reads the official files as typed records, see
    `readers.records.Format`;
*   `gold`: what predictions of a record are compared with;
*   `write_predictions`: the official file of predictions;
*   `score`: the official metrics.
"""

from etcmodel import extras

extras.require("ijson", "msgspec")
