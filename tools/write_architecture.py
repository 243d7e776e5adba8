"""Draws which rooms import which, into docs/architecture.md.

The picture is a Mermaid graph, which GitHub shows as one. Run from the root of
the project when the arrows have changed; a test compares them:

    python -m tools.write_architecture
"""

import pathlib
import re

from tools import modules

PAGE = pathlib.Path("docs/architecture.md")
START, END = "```mermaid\n", "```\n"
# Patterns of modules, and the room that they are in.
ROOMS = {
    r"etcmodel/(demo|tasks/commands)/": "tasks/commands, demo",
    r"etcmodel/tasks/(frame/|(?!__init__)[^/]*$)": "tasks/frame",
    r"etcmodel/tasks/[^/]+/": "tasks/<task>",
    r"etcmodel/datasets/": "datasets",
    r"etcmodel/feature_utils/": "feature_utils",
    r"etcmodel/models/": "models",
    r"etcmodel/layers/": "layers",
    r"etcmodel/attention/": "attention",
}


def room_of(target: str) -> str | None:
    """The room of a module, or None for what stands alone.

    Args:
        target: such as `"etcmodel/tasks/nq/task"`.

    Returns:
        Such as `"tasks/<task>"`.
    """
    for pattern, room in ROOMS.items():
        if re.match(pattern, target):
            return room
    return None


def arrows() -> set[tuple[str, str]]:
    """Pairs of a room and another one that its modules import.

    Tests and what they share do not count, nor what leads to a room only by
    way of another: an arrow from `tasks` to `layers` is left out where there
    are arrows from `tasks` to `models` and from `models` to `layers`.
    """
    direct = set()
    for path in modules.module_files():
        target = modules.target_of(path)
        if re.search(r"(_test|testing)$|/conformance/", target):
            continue
        room = room_of(target)
        for other in modules.imports_of(target):
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
    """The graph as Mermaid reads it."""
    lines = ["flowchart TD"]
    names = {room: re.sub(r"\W+", "_", room) for room in ROOMS.values()}
    lines += [f'    {names[room]}["{_shown(room)}"]' for room in names]
    lines += [f"    {names[a]} --> {names[b]}" for a, b in sorted(arrows())]
    return "\n".join(lines) + "\n"


def _shown(room):
    return room.replace("<", "&lt;").replace(">", "&gt;")


def with_picture(page: str) -> str:
    """The page with the picture in its place."""
    start = page.index(START) + len(START)
    return page[:start] + picture() + page[page.index(END, start) :]


def main() -> None:
    """Writes the page."""
    PAGE.write_text(with_picture(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
