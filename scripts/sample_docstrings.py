"""Print docstrings and function names drawn at random, for a reader who does not know the project.

Usage: ``python scripts/sample_docstrings.py SEED [--docstrings 50] [--names 20] [--all]``

Only public functions, methods and classes are drawn, unless --all is given: those that are not
defined inside a function and whose names, with those of the classes around them, do not begin with
an underscore.

The reader says of each docstring whether it was understood at the first reading, at the second, or
not at all, and of each name what the function does.
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
    """A function, method or class in the project's source code.

    Attributes:
        location: The file and the enclosing definitions, such as "scripts/a.py: class B".
        node: Its syntax tree node.
        is_public: Whether other modules may use it.
    """

    location: str
    node: Definition
    is_public: bool


def find_definitions() -> Iterator[FoundDefinition]:
    """Yield each function, method and class of the project."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            yield from _find_definitions_in(tree, str(path.relative_to(ROOT)), is_public=True)


def _find_definitions_in(
    parent: ast.AST, location: str, *, is_public: bool
) -> Iterator[FoundDefinition]:
    """Yield the functions, methods and classes inside a syntax tree node.

    Args:
        parent: The syntax tree node.
        location: The file and the enclosing definitions of the node.
        is_public: Whether the node and what encloses it are public.
    """
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, Definition):
            is_class = isinstance(child, ast.ClassDef)
            child_is_public = is_public and not child.name.startswith("_")
            yield FoundDefinition(location, child, child_is_public)
            yield from _find_definitions_in(
                child,
                f"{location}: {'class' if is_class else 'def'} {child.name}",
                is_public=child_is_public and is_class,
            )
        else:
            yield from _find_definitions_in(child, location, is_public=is_public)


def format_signature(node: Definition) -> str:
    """Return a function's signature with its `SHOWN_DECORATORS`, or a class's name and bases."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    shown = "".join(f"@{name}\n" for name in decorators if name in SHOWN_DECORATORS)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{shown}def {node.name}({ast.unparse(node.args)}){returns}"


def main() -> None:
    """Print docstrings and function names of the project that are drawn at random."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--docstrings", type=int, default=50)
    parser.add_argument("--names", type=int, default=20)
    parser.add_argument("--all", action="store_true", help="draw private ones, too")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    found = [one for one in find_definitions() if one.is_public or options.all]
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
