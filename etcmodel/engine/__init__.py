"""The functions behind the commands, with typed options and results.

The modules `preprocess`, `train`, `evaluate`, `export`, `predict`,
`inspect_record` and `lift` each have a dataclass `Options` and a function with
the module's name. The command line and the estimators call these functions.
Errors name the option that caused them.
"""

from etcmodel import extras

extras.require_extra("tasks")
