"""Lists the imports between packages ("rooms") in docs/architecture.md.

A test checks that the list is up to date. When imports between rooms change,
run from the root of the project:

    python -m tools.write_architecture
"""

import collections
import pathlib
import re

from tools import modules

PAGE = pathlib.Path("docs/architecture.md")
START, END = "```text\n", "```\n"
# The rooms from top to bottom.
ROOMS = sum(modules.LEVELS, ())


def room_of(target: str) -> str | None:
    """Returns the room of a module, `"etcmodel/tasks/nq/task"`, or None."""
    match = re.match(r"etcmodel/(\w+)/", target)
    return match.group(1) if match and match.group(1) in ROOMS else None


def arrows() -> set[tuple[str, str]]:
    """Returns pairs of rooms: the importing one and the imported one.

    Tests and `testing` do not count. Arrows that follow from other arrows are
    left out: there is no arrow from `tasks` to `layers` if there are arrows
    from `tasks` to `models` and from `models` to `layers`.
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
    # All pairs that a path of two or more arrows connects.
    farther = {(a, d) for a, b in direct for c, d in direct if b == c}
    while True:
        more = {(a, d) for a, b in farther for c, d in direct if b == c}
        if more <= farther:
            return direct - farther
        farther |= more


def listing() -> str:
    """Returns a line for each room, with the rooms that it imports."""
    width = max(map(len, ROOMS))
    imported = collections.defaultdict(list)
    for room, other in sorted(arrows()):
        imported[room].append(other)
    return "".join(
        f"{x:{width}} -> {', '.join(imported[x])}\n"
        if x in imported
        else f"{x}\n"
        for x in ROOMS
    )


def with_listing(page: str) -> str:
    """Returns the page with an updated list."""
    start = page.index(START) + len(START)
    return page[:start] + listing() + page[page.index(END, start) :]


def main() -> None:
    """Updates the page."""
    PAGE.write_text(with_listing(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
