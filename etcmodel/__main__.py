"""Runs `python -m etcmodel COMMAND`, like the program `etcmodel`."""

import sys

from etcmodel.extras import MissingExtraError


def run() -> int:
    """Runs the command in `sys.argv`; returns its exit code."""
    try:
        from etcmodel.cli import command_line
        from etcmodel.cli import stderr_filter
    except MissingExtraError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    with stderr_filter.filtered():
        return command_line.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
