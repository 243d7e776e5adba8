"""`python -m etcmodel COMMAND`; also installed as the program `etcmodel`."""

import sys

from etcmodel.tasks.commands import cli


def run() -> int:
    """Runs the command that the program was called with.

    Returns:
        The exit code.
    """
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
