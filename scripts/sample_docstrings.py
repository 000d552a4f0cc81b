"""Print docstrings and function names drawn at random, for a reader who does not know the project.

Usage: ``python scripts/sample_docstrings.py SEED [--docstrings 50] [--names 20]``

The reader says of each docstring whether it was understood at the first reading, at the second, or
not at all, and of each name what the function does. docs/architecture.md has the latest counts.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("an_control", "sim/an_control_sim", "launch", "scripts", "experiments")
MIN_NAME = 4
"""Number of letters of the shortest function name that is drawn."""

SHOWN_DECORATORS = ("property", "cached_property", "staticmethod", "classmethod")
"""Decorators that change how a method is called."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class FoundDefinition:
    """A function, method or class of the project.

    Attributes:
        location: The file, followed by the enclosing classes and functions, each as it is defined.
        node: Its syntax tree node.
    """

    location: str
    node: Definition


def find_definitions() -> Iterator[FoundDefinition]:
    """Yield each function, method and class of the project."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            yield from _find_definitions_in(tree, str(path.relative_to(ROOT)))


def _find_definitions_in(parent: ast.AST, location: str) -> Iterator[FoundDefinition]:
    """Yield the functions, methods and classes inside a syntax tree node.

    Args:
        parent: The syntax tree node.
        location: The file and the enclosing definitions of the node.
    """
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, Definition):
            yield FoundDefinition(location, child)
            keyword = "class" if isinstance(child, ast.ClassDef) else "def"
            yield from _find_definitions_in(child, f"{location}: {keyword} {child.name}")
        else:
            yield from _find_definitions_in(child, location)


def format_signature(node: Definition) -> str:
    """Return the signature of a function with some of its decorators, or the head of a class."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    shown = "".join(f"@{name}\n" for name in decorators if name in SHOWN_DECORATORS)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{shown}def {node.name}({ast.unparse(node.args)}){returns}"


def main() -> None:
    """Print the docstrings and function names that the seed on the command line draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--docstrings", type=int, default=50)
    parser.add_argument("--names", type=int, default=20)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    found = list(find_definitions())
    described = [definition for definition in found if ast.get_docstring(definition.node)]
    functions = [
        definition
        for definition in found
        if not isinstance(definition.node, ast.ClassDef)
        and len(definition.node.name.strip("_")) >= MIN_NAME
        and not definition.node.name.startswith("__")
    ]
    for number, definition in enumerate(draw.sample(described, options.docstrings), 1):
        docstring = ast.get_docstring(definition.node)
        print(
            f"{number}. {definition.location}\n{format_signature(definition.node)}\n{docstring}\n"
        )
    print("Names:")
    for number, definition in enumerate(draw.sample(functions, options.names), 1):
        print(f"{number}. {definition.location}\n{format_signature(definition.node)}")


if __name__ == "__main__":
    main()
