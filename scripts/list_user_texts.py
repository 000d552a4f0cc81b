"""List all texts that users of the product may see, with file and line.

    python scripts/list_user_texts.py [--kind log error ...] [PATH ...]

The list is made for a check of how clear the texts are. They are found in the source code,
without running it. They are log lines, error texts, diagnostics (texts and keys), reasons (texts
that one function returns and another reports), prints, and help texts of the command line, of ROS
parameters and of launch arguments. The values of a text stand in braces. PATH limits the list to
files and folders.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("an_control", "sim/an_control_sim", "launch")
KINDS = ("log", "error", "diagnostics", "reason", "print", "help")
LEVELS = {"debug", "info", "warning", "error", "fatal", "exception"}
HELP_KEYWORDS = {"help", "description"}
VERBS_FOLDER, OPTIONS_FOLDER = "an_control/cli/", "an_control/learning/"
"""Folder of the verbs, dataclasses named `...Command`, whose docstrings and attributes' docstrings
become help texts; and folder of the dataclasses named `...Options` or `...Parts`, which only have
their attributes' docstrings shown."""
HELP_TABLES = {"ARGUMENTS", "FILES", "FIGURES", "GROUPS", "RENAMED"}
"""Dicts of a module whose values are help texts, or tuples with a help text at the end."""
HELP_CALLS = {"_make_parameter_field": 1, "_make_setting_field": 1}
"""Functions that declare a parameter or a disturbance, with the index of the help text among their
arguments."""


LineAndText = tuple[int, str]
"""Line number of a text, and the text."""


class UserText(NamedTuple):
    """One text that the program may show to a user, such as an error or a help text.

    Attributes:
        file: Path of the module that contains the text.
        line: Line number of the text.
        kind: Kind of the text, one of `KINDS`.
        text: The text.
    """

    file: str
    line: int
    kind: str
    text: str


def find_user_texts(paths: Sequence[Path]) -> list[UserText]:
    """Return the texts in these files and folders that users may see, sorted by file and line."""
    found: set[UserText] = set()
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            name = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)
            found |= set(
                _UserTextFinder(name, ast.parse(file.read_text(encoding="utf-8"))).find_all()
            )
    return sorted(found)


class _UserTextFinder:
    """Finder of the texts in one module that users may see.

    Args:
        file: Path of the module, which is stored in each found text.
        tree: Syntax tree of the module.
    """

    def __init__(self, file: str, tree: ast.Module) -> None:
        self._file, self._tree = file, tree
        self._constants: dict[str, ast.expr] = {}
        for node in tree.body:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._constants[target.id] = node.value

    def find_all(self) -> Iterator[UserText]:
        """Yield the texts of the module that users may see; some are yielded more than once."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call):
                yield from self._find_user_texts_in_call(node)
            elif isinstance(node, ast.Raise) and node.exc is not None:
                yield from self._make_user_texts("error", self._find_texts(node.exc))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self._find_user_texts_in_function(node)
            elif isinstance(node, ast.ClassDef):
                yield from self._make_user_texts(
                    "help", _find_help_texts_in_class(node, self._file)
                )
        for name in HELP_TABLES & self._constants.keys():
            for value in _find_help_texts_in_dict(self._constants[name]):
                yield from self._make_user_texts_of_sentences("help", value)

    def _find_user_texts_in_call(self, call: ast.Call) -> Iterator[UserText]:
        """Yield the texts for users in the arguments of a call, for example of a logger."""
        name = _find_function_name(call.func)
        owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if name in LEVELS and "log" in owner.lower():
            yield from self._make_user_texts("log", self._find_texts(*call.args))
        elif name == "print":
            yield from self._make_user_texts("print", self._find_texts(*call.args))
        elif name.endswith(("Error", "Refused", "Refusal")) or name in (
            "error",
            "make_error",
            "_raise_error",
        ):
            yield from self._make_user_texts("error", self._find_texts(*call.args))
        elif name in HELP_CALLS:
            choices = [one.value for one in call.keywords if one.arg in ("choices", "unset")]
            yield from self._make_user_texts(
                "help", self._find_texts(*call.args[HELP_CALLS[name] :], *choices)
            )
        for one in call.keywords:
            if one.arg in HELP_KEYWORDS:
                yield from self._make_user_texts("help", self._find_texts(one.value))

    def _find_user_texts_in_function(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> Iterator[UserText]:
        """Yield the texts for users that a function puts into a diagnostics status or returns."""
        body = [node for part in function.body for node in ast.walk(part)]
        calls = {_find_function_name(node.func) for node in body if isinstance(node, ast.Call)}
        if calls & {"_make_status", "DiagnosticStatus"}:
            docstring = {id(one) for one in ast.walk(function) if _is_docstring(one, function)}
            for node in body:
                if id(node) not in docstring:
                    yield from self._make_user_texts("diagnostics", self._find_status_texts(node))
            return
        returns_text = "str" in ast.unparse(function.returns or ast.Constant(""))
        kinds: dict[str, str] = {}
        for node in body:
            if isinstance(node, ast.Raise) or (
                isinstance(node, ast.Call)
                and _find_function_name(node.func).endswith(("Error", "error", "fail"))
            ):
                kinds |= dict.fromkeys(_find_variable_names(node), "error")
            elif returns_text and isinstance(node, ast.Return | ast.Yield) and node.value:
                kinds |= dict.fromkeys(_find_variable_names(node), "reason")
                yield from self._make_user_texts_of_sentences("reason", node.value)
        for node in body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                if node.targets[0].id in kinds:
                    yield from self._make_user_texts_of_sentences(
                        kinds[node.targets[0].id], node.value
                    )
            elif (
                isinstance(node, ast.Call)
                and _find_function_name(node.func) == "append"
                and node.args
            ):
                owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
                if isinstance(owner, ast.Name) and owner.id in kinds:
                    yield from self._make_user_texts_of_sentences(kinds[owner.id], node.args[0])

    def _make_user_texts_of_sentences(self, kind: str, node: ast.expr) -> Iterator[UserText]:
        """Yield a `UserText` for each text of more than one word in an expression.

        Args:
            kind: Kind of the texts, one of `KINDS`.
            node: The expression.
        """
        yield from self._make_user_texts(
            kind, ((at, text) for at, text in self._find_texts(node) if " " in text)
        )

    def _make_user_texts(self, kind: str, texts: Iterator[LineAndText]) -> Iterator[UserText]:
        """Yield a `UserText` for each text that has a letter.

        Args:
            kind: Kind of the texts, one of `KINDS`.
            texts: Pairs of line number and text.
        """
        for line, text in texts:
            if any(map(str.isalpha, text)):
                yield UserText(self._file, line, kind, " ".join(text.split()))

    def _find_status_texts(self, node: ast.AST) -> Iterator[LineAndText]:
        """Yield line number and text of each text that a node puts into a diagnostics status.

        These texts are assigned values, keys of dicts, and arguments of `append` or `_make_status`.
        """
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            parts = [*node.keys]
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            parts = [*node.value.elts] if isinstance(node.value, ast.Tuple) else [node.value]
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                parts.append(node.targets[0].slice)
        elif isinstance(node, ast.Call) and _find_function_name(node.func) in (
            "_make_status",
            "append",
        ):
            parts = [*node.args]
        for part in parts:
            if isinstance(part, ast.Constant | ast.JoinedStr | ast.IfExp | ast.BoolOp):
                yield from self._find_texts(part)

    def _find_texts(self, *nodes: ast.expr) -> Iterator[LineAndText]:
        """Yield a pair for each literal text within expressions: its line number, and the text."""
        for node in nodes:
            if (text := self._format_text(node)) is not None:
                yield node.lineno, text
            elif isinstance(node, ast.Name) and node.id in self._constants:
                if (text := self._format_text(self._constants[node.id])) is not None:
                    yield node.lineno, text
            elif not isinstance(node, ast.Subscript | ast.Lambda):
                yield from self._find_texts(*_list_subexpressions_with_texts(node))

    def _format_text(self, node: ast.expr) -> str | None:
        """Return the text of a string literal, an f-string or a sum of these; None for other nodes.

        Values that an f-string inserts appear as their source code in braces.
        """
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.JoinedStr):
            return "".join(
                part.value if isinstance(part, ast.Constant) else f"{{{_format_expression(part)}}}"
                for part in node.values
            )
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self._format_text(node.left), self._format_text(node.right)
            if left is None and right is None:
                return None
            sides = ((left, node.left), (right, node.right))
            return "".join(f"{{{ast.unparse(one)}}}" if t is None else t for t, one in sides)
        return None


def _list_subexpressions_with_texts(node: ast.expr) -> list[ast.expr]:
    """Return the direct subexpressions that may hold a text for users, as a call's arguments."""
    if isinstance(node, ast.Call):
        parts = [*node.args, *(one.value for one in node.keywords)]
        return [*parts, node.func.value] if isinstance(node.func, ast.Attribute) else parts
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Compare):
        return []
    return [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]


def _format_expression(part: ast.expr) -> str:
    """Return the source code of an expression, or of the value that an f-string inserts."""
    return ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ast.unparse(part)


def _find_variable_names(node: ast.AST) -> set[str]:
    """Return the names of the variables in a syntax tree node."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _find_function_name(function: ast.expr) -> str:
    """Return the final part of a called function's name, or "" if the function has no name."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _find_help_texts_in_dict(table: ast.expr) -> Iterator[ast.expr]:
    """Yield the syntax node of each help text in a dict.

    The help text of an entry is its value, or the last element if the value is a tuple.
    """
    if isinstance(table, ast.Dict):
        for value in table.values:
            yield from _find_help_texts_in_dict(value)
    elif isinstance(table, ast.DictComp):
        yield from _find_help_texts_in_dict(table.value)
    elif isinstance(table, ast.Tuple):
        yield from _find_help_texts_in_dict(table.elts[-1])
    else:
        yield table


def _find_help_texts_in_class(owner: ast.ClassDef, file: str) -> Iterator[LineAndText]:
    """Yield a pair (line number, text) for each docstring of a class that becomes a help text.

    Args:
        owner: The class.
        file: Path of its module.
    """
    is_verb = file.startswith(VERBS_FOLDER) and owner.name.endswith("Command")
    is_part = file.startswith(OPTIONS_FOLDER) and owner.name.endswith(("Options", "Parts"))
    for node in owner.body if is_verb else owner.body[1:] if is_part else ():
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value


def _is_docstring(node: ast.AST, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a syntax node is, or is part of, the docstring of a function."""
    first = function.body[0]
    return isinstance(first, ast.Expr) and (node is first or node is first.value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the texts in the source code that users may see; return the exit status.

    Args:
        arguments: Command line: files, folders and kinds of text to which the list is limited.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders; default: all")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=KINDS, help="default: all")
    options = parser.parse_args(arguments)
    paths = [path.resolve() for path in options.paths] or [ROOT / one for one in SOURCES]
    for file, line, kind, text in find_user_texts(paths):
        if kind in options.kind:
            print(f"{file}:{line}: {kind}: {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
