"""Draws the structure of the code: rooms as boxes by floor, imports as arrows.

    python scripts/structure.py docs/explanation/architecture/rooms.png  this work tree
    python scripts/structure.py before.png REVISION  a commit of it

A room is a folder of modules. The modules that lie directly in a folder of `OPEN` are rooms of
their own, since some of them stand above its other folders and some below. A room stands one floor
above the highest room that it imports, so every arrow points down; an arrow that would close a
cycle is red. Imports inside functions count too. The table of rooms is printed, and how much code
the policy node reaches.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("an_control", "sim/an_control_sim")
OPEN = ("an_control", "an_control.learning", "an_control.policy", "an_control_sim")
NODE = "an_control.ros.node"


@dataclass
class Room:
    """One room: its number of files and lines, and the rooms that it imports."""

    files: int = 0
    lines: int = 0
    imports: set[str] = field(default_factory=set)


@cache
def sources(revision: str | None = None) -> dict[str, str]:
    """Return the text of each module by its dotted name, of a commit or of this work tree."""
    found = {}
    for path in _listed(revision):
        if path.endswith(".py") and path.startswith(PACKAGES):
            text = _git("show", f"{revision}:{path}") if revision else (ROOT / path).read_text()
            name = path.removeprefix("sim/").removesuffix(".py").replace("/", ".")
            found[name.removesuffix(".__init__")] = text
    return found


def imported(text: str, modules: Mapping[str, str]) -> Iterator[str]:
    """Yield the modules of `modules` that this text imports, anywhere in it."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            while name and name not in modules:
                name = name.rpartition(".")[0]
            if name:
                yield name


@cache
def file_imports(revision: str | None = None) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    modules = sources(revision)
    return {name: set(imported(text, modules)) - {name} for name, text in modules.items()}


def closure(module: str, revision: str | None = None) -> set[str]:
    """Return a module and all that it imports, directly or not."""
    imports, reached, left = file_imports(revision), set[str](), [module]
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += imports[name]
    return reached


def count_code_lines(text: str) -> int:
    """Return the number of lines of a module without its docstrings."""
    described = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for one in node.body
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
        for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)
    }
    return text.count("\n") - len(described)


def describe_closure(module: str, revision: str | None = None) -> str:
    """Return the number of files and lines that a module reaches by its imports, as a sentence."""
    texts = [sources(revision)[name] for name in closure(module, revision)]
    lines, code = sum(text.count("\n") for text in texts), sum(map(count_code_lines, texts))
    return f"{module} reaches {len(texts)} files, {lines} lines, {code} without docstrings"


def room_of(module: str, modules: Mapping[str, object]) -> str:
    """Return the room of a module: its folder, the outer one if nested, or itself."""
    is_folder = any(name.startswith(f"{module}.") for name in modules)
    folder = module if is_folder else module.rpartition(".")[0]
    depth = 3 if folder.startswith("an_control.") else 2
    return module if folder in OPEN else ".".join(folder.split(".")[:depth])


def rooms(revision: str | None = None) -> dict[str, Room]:
    """Return the rooms by name."""
    texts, imports = sources(revision), file_imports(revision)
    found: dict[str, Room] = defaultdict(Room)
    for module, text in texts.items():
        if not text.strip():
            continue
        name = room_of(module, texts)
        room = found[name]
        room.files += 1
        room.lines += text.count("\n")
        others = {room_of(one, texts) for one in imports[module]}
        room.imports |= {one for one in others if one != name and texts.get(one, "x").strip()}
    return dict(found)


def floors(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the floor of each room, 0 for rooms that import nothing.

    Raises:
        CycleError: If there is a cycle.
    """
    found: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        found[name] = 1 + max((found[one] for one in graph.get(name, ())), default=-1)
    return found


def table(found: Mapping[str, Room]) -> str:
    """Return the rooms as a markdown table."""
    lines = ["| room | files | lines | imports |", "|---|---|---|---|"]
    for name, room in sorted(found.items()):
        lines.append(
            f"| `{_shown(name)}` | {room.files} | {room.lines} |"
            f" {', '.join(sorted(_shown(one) for one in room.imports))} |"
        )
    return "\n".join(lines)


def draw(found: Mapping[str, Room], path: Path, title: str) -> None:
    """Draw each room as a box on its floor, wider with more lines, and arrows for imports."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    graph = {name: room.imports for name, room in found.items()}
    try:
        floor = floors(graph)
    except CycleError as error:
        floor = _without_cycles(graph)
        title += f" (a cycle: {' -> '.join(_shown(str(one)) for one in error.args[1])})"
    levels: dict[int, list[str]] = defaultdict(list)
    for name in sorted(found):
        levels[floor[name]].append(name)
    figure, axes = pyplot.subplots(figsize=(16, len(levels) + 1), layout="constrained")
    place: dict[str, tuple[float, float]] = {}
    right = 0.0
    for level, names in levels.items():
        widths = [1.1 + found[name].lines ** 0.5 / 30 for name in names]
        left, gap = 0.0, max(0.1, (16 - sum(widths)) / (len(names) + 1))
        for name, width in zip(names, widths, strict=True):
            left += gap
            box = pyplot.Rectangle((left, level), width, 0.5, facecolor="#dce9f5", edgecolor="#456")
            axes.add_patch(box)
            folder = _shown(name).removeprefix("an_control/")
            label = f"{folder}\n{found[name].files} files, {found[name].lines} lines"
            axes.text(left + width / 2, level + 0.25, label, ha="center", va="center", fontsize=7)
            place[name] = left + width / 2, level
            left += width
            right = max(right, left)
    for name, others in direct(graph).items():
        for other in others:
            (x, y), (to_x, to_y) = place[name], place[other]
            up = floor[other] >= floor[name]
            axes.annotate(
                "",
                (to_x, to_y + 0.5),
                (x, y),
                arrowprops={"arrowstyle": "->", "color": "red" if up else "#89a", "lw": 0.8},
            )
    axes.set(xlim=(0, right + 0.2), ylim=(-0.3, max(levels) + 0.8), title=title)
    axes.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


def direct(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports that do not follow from others: not a -> c if a -> b and b -> c."""

    @cache
    def below(name: str) -> frozenset[str]:
        """Return all rooms that a room imports, directly or not."""
        return frozenset(graph[name]).union(*map(below, graph[name]))

    try:
        floors(graph)
    except CycleError:
        return dict(graph)
    return {
        name: {one for one in others if not any(one in below(other) for other in others)}
        for name, others in graph.items()
    }


def _without_cycles(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return floors for a graph with cycles, leaving out each arrow that closes one."""
    kept: dict[str, set[str]] = {name: set() for name in graph}
    for name in sorted(graph):
        for other in sorted(graph[name]):
            kept[name].add(other)
            try:
                tuple(TopologicalSorter(kept).static_order())
            except CycleError:
                kept[name].remove(other)
    return floors(kept)


def _shown(name: str) -> str:
    """Return a room's name as its path."""
    return ("sim/" if name.startswith("an_control_sim") else "") + name.replace(".", "/")


def _listed(revision: str | None) -> list[str]:
    """Return the paths of the files of a commit, or of this work tree."""
    if revision:
        return _git("ls-tree", "-r", "--name-only", revision).splitlines()
    return _git("ls-files").splitlines()


def _git(*arguments: str) -> str:
    """Return the output of a git command."""
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def main() -> None:
    """Draw the rooms, and print their table and how much the node reaches."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("picture", type=Path, help="the picture's file")
    parser.add_argument("revision", nargs="?", help="a commit; without it the work tree")
    given = parser.parse_args()
    shown = rooms(*filter(None, [given.revision]))
    draw(shown, given.picture, given.revision or "an_control")
    print(table(shown))
    print(f"\n{describe_closure(NODE, given.revision)}")


if __name__ == "__main__":
    main()
