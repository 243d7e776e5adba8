"""What the commands do, as functions of typed options with typed results.

`preprocess`, `train`, `evaluate`, `export`, `predict`, `inspect_record` and
`lift` are modules with a dataclass of `Options` and a function of their own
name. The command line and the estimators call these functions. An error names
the option that caused it.
"""

from etcmodel import extras

extras.require_extra("tasks")
