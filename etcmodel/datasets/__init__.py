"""Official datasets: their records, gold answers, predictions and scores.

A dataset does not depend on a model. Each is a module, or a folder, with

*   `FORMAT`: reads the official files as typed records, see
    `readers.records.Format`;
*   `gold`: the answer that predictions of a record are compared with;
*   `write_predictions`: writes the official file of predictions;
*   `score`: computes the official metrics.
"""

from etcmodel import extras

extras.require("ijson", "msgspec")
