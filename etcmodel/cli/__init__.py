"""The commands of `python -m etcmodel`.

Functions here raise a `UserError` for what the user can fix: flags, files and
configurations that cannot be used.
"""

from etcmodel import extras

extras.require_extra("tasks")
