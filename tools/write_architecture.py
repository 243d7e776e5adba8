"""Draws the imports between rooms into docs/architecture.md.

The picture is a Mermaid graph. Run it from the root of the project when imports
between rooms change; a test compares them:

    python -m tools.write_architecture
"""

import pathlib
import re

from tools import modules

PAGE = pathlib.Path("docs/architecture.md")
START, END = "```mermaid\n", "```\n"
# From top to bottom.
ROOMS = sum(modules.LEVELS, ())


def room_of(target: str) -> str | None:
    """Returns the room of a module, `"etcmodel/tasks/nq/task"`, or None."""
    match = re.match(r"etcmodel/(\w+)/", target)
    return match.group(1) if match and match.group(1) in ROOMS else None


def arrows() -> set[tuple[str, str]]:
    """Returns pairs of a room and another one that its modules import.

    Tests and what they share do not count, nor what leads to a room only by
    way of another: an arrow from `tasks` to `layers` is left out where there
    are arrows from `tasks` to `models` and from `models` to `layers`.
    """
    direct = set()
    for path in modules.module_files():
        target = modules.target_of(path)
        if target.endswith("_test"):
            continue
        room = room_of(target)
        for other in modules.imports_of(target, strings=False):
            pair = (room, room_of(other))
            if None not in pair and pair[0] != pair[1]:
                direct.add(pair)
    # Everything that a room reaches by two arrows or more.
    farther = {(a, d) for a, b in direct for c, d in direct if b == c}
    while True:
        more = {(a, d) for a, b in farther for c, d in direct if b == c}
        if more <= farther:
            return direct - farther
        farther |= more


def picture() -> str:
    """Returns the graph as Mermaid reads it."""
    lines = ["flowchart TD", *(f"    {room}" for room in ROOMS)]
    lines += [f"    {a} --> {b}" for a, b in sorted(arrows())]
    return "\n".join(lines) + "\n"


def with_picture(page: str) -> str:
    """Returns the page with the picture in its place."""
    start = page.index(START) + len(START)
    return page[:start] + picture() + page[page.index(END, start) :]


def main() -> None:
    """Writes the page."""
    PAGE.write_text(with_picture(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
