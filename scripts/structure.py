"""Draws the structure of the code: folders of modules as boxes, and imports as arrows.

    python scripts/structure.py docs/explanation/architecture/folders.png  this work tree
    python scripts/structure.py before.png REVISION  a commit of it

The modules that lie directly in a folder of `OPEN` are drawn one by one, because some of them
import the folders inside it and some are imported by these. In this file "folder" means such a
module, too. A folder stands one level above the highest folder that it imports, so every arrow
points down; an arrow that would close a cycle is red. Imports inside functions count too. The table
of folders is printed, and how much code the policy node imports, directly or not.
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
class CodeFolder:
    """A folder of modules: its numbers of files and lines, and the folders that it imports."""

    files: int = 0
    lines: int = 0
    imports: set[str] = field(default_factory=set)


@cache
def read_module_sources(revision: str | None = None) -> dict[str, str]:
    """Return the source text of each module, by the module's dotted name.

    Args:
        revision: A git commit; None reads this work tree.
    """
    found = {}
    for path in _list_files(revision):
        if path.endswith(".py") and path.startswith(PACKAGES):
            text = _run_git("show", f"{revision}:{path}") if revision else (ROOT / path).read_text()
            name = path.removeprefix("sim/").removesuffix(".py").replace("/", ".")
            found[name.removesuffix(".__init__")] = text
    return found


def find_imported_module_names(text: str, modules: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of the project's modules that a source text imports, also inside functions.

    Args:
        text: Source of a module.
        modules: All modules of the project, by dotted name.
    """
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
def collect_imports_of_modules(revision: str | None = None) -> dict[str, set[str]]:
    """Return for each module the names of the modules that it imports.

    Args:
        revision: A git commit; None reads this work tree.
    """
    modules = read_module_sources(revision)
    return {
        name: set(find_imported_module_names(text, modules)) - {name}
        for name, text in modules.items()
    }


def collect_imported_modules(module: str, revision: str | None = None) -> set[str]:
    """Return the names of a module and of all modules that it imports, directly or not.

    Args:
        module: Dotted name of the module.
        revision: A git commit; None reads this work tree.
    """
    imports, reached, left = collect_imports_of_modules(revision), set[str](), [module]
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += imports[name]
    return reached


def count_lines_without_docstrings(text: str) -> int:
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


def describe_imported_modules(module: str, revision: str | None = None) -> str:
    """Return a sentence on how many files and lines a module needs, with all its imports.

    Args:
        module: Dotted name of the module.
        revision: A git commit; None reads this work tree.
    """
    texts = [
        read_module_sources(revision)[name] for name in collect_imported_modules(module, revision)
    ]
    lines, code = (
        sum(text.count("\n") for text in texts),
        sum(map(count_lines_without_docstrings, texts)),
    )
    return f"{module} reaches {len(texts)} files, {lines} lines, {code} without docstrings"


def find_box_of_module(module: str, modules: Mapping[str, object]) -> str:
    """Return the name of the box in which a module is drawn in the picture of the code's folders.

    Most modules share the box of their folder, such as "an_control_sim.bridge". A module directly
    in one of the folders `OPEN` has a box of its own.

    Args:
        module: Dotted name of the module.
        modules: All modules, by dotted name.
    """
    is_folder = any(name.startswith(f"{module}.") for name in modules)
    folder = module if is_folder else module.rpartition(".")[0]
    depth = 3 if folder.startswith("an_control.") else 2
    return module if folder in OPEN else ".".join(folder.split(".")[:depth])


def collect_folders(revision: str | None = None) -> dict[str, CodeFolder]:
    """Return size and imports of each folder of modules, by folder name.

    Args:
        revision: A git commit; None reads this work tree.
    """
    texts, imports = read_module_sources(revision), collect_imports_of_modules(revision)
    found: dict[str, CodeFolder] = defaultdict(CodeFolder)
    for module, text in texts.items():
        if not text.strip():
            continue
        name = find_box_of_module(module, texts)
        folder = found[name]
        folder.files += 1
        folder.lines += text.count("\n")
        others = {find_box_of_module(one, texts) for one in imports[module]}
        folder.imports |= {one for one in others if one != name and texts.get(one, "x").strip()}
    return dict(found)


def compute_import_levels_of_folders(imports_by_folder: Mapping[str, set[str]]) -> dict[str, int]:
    """Return at which level of the picture `draw_folders` shall draw each folder.

    A folder that imports nothing is on level 0. Any other folder is one level above the highest
    folder that it imports.

    Args:
        imports_by_folder: Names of the imported folders, by folder.

    Raises:
        CycleError: Folders import each other in a cycle.
    """
    found: dict[str, int] = {}
    for name in TopologicalSorter(imports_by_folder).static_order():
        found[name] = 1 + max((found[one] for one in imports_by_folder.get(name, ())), default=-1)
    return found


def format_table(folders: Mapping[str, CodeFolder]) -> str:
    """Return a markdown table of the folders.

    Args:
        folders: The folders, by name.
    """
    lines = ["| folder | files | lines | imports |", "|---|---|---|---|"]
    for name, folder in sorted(folders.items()):
        lines.append(
            f"| `{_format_folder_name(name)}` | {folder.files} | {folder.lines} |"
            f" {', '.join(sorted(_format_folder_name(one) for one in folder.imports))} |"
        )
    return "\n".join(lines)


def draw_folders(folders: Mapping[str, CodeFolder], path: Path, title: str) -> None:
    """Draw each folder as a box, and the imports between folders as arrows.

    A folder stands one level above the folders that it imports. The more lines of code it has, the
    wider its box is.

    Args:
        folders: The folders, by name.
        path: The picture to write.
        title: Title of the picture.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    graph = {name: folder.imports for name, folder in folders.items()}
    try:
        level_of = compute_import_levels_of_folders(graph)
    except CycleError as error:
        level_of = _compute_folder_levels_without_cycles(graph)
        title += (
            f" (a cycle: {' -> '.join(_format_folder_name(str(one)) for one in error.args[1])})"
        )
    levels: dict[int, list[str]] = defaultdict(list)
    for name in sorted(folders):
        levels[level_of[name]].append(name)
    figure, axes = pyplot.subplots(figsize=(16, len(levels) + 1), layout="constrained")
    place: dict[str, tuple[float, float]] = {}
    right = 0.0
    for level, names in levels.items():
        widths = [1.1 + folders[name].lines ** 0.5 / 30 for name in names]
        left, gap = 0.0, max(0.1, (16 - sum(widths)) / (len(names) + 1))
        for name, width in zip(names, widths, strict=True):
            left += gap
            box = pyplot.Rectangle((left, level), width, 0.5, facecolor="#dce9f5", edgecolor="#456")
            axes.add_patch(box)
            folder = _format_folder_name(name).removeprefix("an_control/")
            label = f"{folder}\n{folders[name].files} files, {folders[name].lines} lines"
            axes.text(left + width / 2, level + 0.25, label, ha="center", va="center", fontsize=7)
            place[name] = left + width / 2, level
            left += width
            right = max(right, left)
    for name, others in drop_indirect_imports(graph).items():
        for other in others:
            (x, y), (to_x, to_y) = place[name], place[other]
            up = level_of[other] >= level_of[name]
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


def drop_indirect_imports(imports_by_folder: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports between folders without those that follow from others.

    For example, if a imports b, and b imports c, then the import of c by a is left out.

    Args:
        imports_by_folder: Names of the imported folders, by folder. If they have a cycle, all
            imports are returned.
    """

    @cache
    def collect_imported_folders(name: str) -> frozenset[str]:
        """Return all folders that a folder imports, directly or through other folders."""
        return frozenset(imports_by_folder[name]).union(
            *map(collect_imported_folders, imports_by_folder[name])
        )

    try:
        compute_import_levels_of_folders(imports_by_folder)
    except CycleError:
        return dict(imports_by_folder)
    return {
        name: {
            one
            for one in others
            if not any(one in collect_imported_folders(other) for other in others)
        }
        for name, others in imports_by_folder.items()
    }


def _compute_folder_levels_without_cycles(
    imports_by_folder: Mapping[str, set[str]],
) -> dict[str, int]:
    """Return the level of each folder in the picture, without the imports that are part of a cycle.

    Args:
        imports_by_folder: Names of the imported folders, by folder.
    """
    kept: dict[str, set[str]] = {name: set() for name in imports_by_folder}
    for name in sorted(imports_by_folder):
        for other in sorted(imports_by_folder[name]):
            kept[name].add(other)
            try:
                tuple(TopologicalSorter(kept).static_order())
            except CycleError:
                kept[name].remove(other)
    return compute_import_levels_of_folders(kept)


def _format_folder_name(name: str) -> str:
    """Return a folder's dotted name as its path in the repository."""
    return ("sim/" if name.startswith("an_control_sim") else "") + name.replace(".", "/")


def _list_files(revision: str | None) -> list[str]:
    """Return the paths of all files of a git commit, or of this work tree for None."""
    if revision:
        return _run_git("ls-tree", "-r", "--name-only", revision).splitlines()
    return _run_git("ls-files").splitlines()


def _run_git(*arguments: str) -> str:
    """Run a git command in the repository and return its output."""
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def main() -> None:
    """Draw the folders of the project's code and their imports as a picture, and print their sizes.

    The size of all code that the policy node imports is printed too.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("picture", type=Path, help="the picture's file")
    parser.add_argument("revision", nargs="?", help="a commit; without it the work tree")
    given = parser.parse_args()
    shown = collect_folders(*filter(None, [given.revision]))
    draw_folders(shown, given.picture, given.revision or "an_control")
    print(format_table(shown))
    print(f"\n{describe_imported_modules(NODE, given.revision)}")


if __name__ == "__main__":
    main()
