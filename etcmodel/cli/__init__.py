"""The commands of `python -m etcmodel`.

They raise a `UserError` for problems that users can fix: in flags, files or
configurations.
"""

from etcmodel import extras

extras.require_extra("tasks")
