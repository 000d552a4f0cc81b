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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("an_control", "sim/an_control_sim", "launch", "scripts", "experiments")
MIN_NAME = 4
"""The length of the shortest name that is drawn."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def find_definitions() -> Iterator[tuple[str, Definition]]:
    """Yield the file and syntax tree node of each function, method and class."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, Definition):
                    yield str(path.relative_to(ROOT)), node


def format_signature(node: Definition) -> str:
    """Return the line that defines a function or class, without its body."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returns}"


def main() -> None:
    """Print the docstrings and function names that the seed on the command line draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--docstrings", type=int, default=50)
    parser.add_argument("--names", type=int, default=20)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    found = list(find_definitions())
    described = [(file, node) for file, node in found if ast.get_docstring(node)]
    functions = [
        (file, node)
        for file, node in found
        if not isinstance(node, ast.ClassDef)
        and len(node.name.strip("_")) >= MIN_NAME
        and not node.name.startswith("__")
    ]
    for number, (file, node) in enumerate(draw.sample(described, options.docstrings), 1):
        print(f"{number}. {file}\n{format_signature(node)}\n{ast.get_docstring(node)}\n")
    print("Names:")
    for number, (file, node) in enumerate(draw.sample(functions, options.names), 1):
        print(f"{number}. {file}: {format_signature(node)}")


if __name__ == "__main__":
    main()
