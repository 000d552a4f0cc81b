"""Hashes of what a figure (table or picture of results) depends on: commands, models and code.

A figure is stale if any of these has changed since it was made. Of a Python file only the
statements count: comments, docstrings and blank lines may change. A file that was moved or renamed
counts as changed.
"""

from __future__ import annotations

import ast
import hashlib
import io
import subprocess
import tarfile
import tokenize
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from experiments.figures.registry import PageFigure

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("an_control", "sim", "experiments", "models", "scripts", "config", "test/campaign")
SUFFIXES = (".py", ".yaml", ".safetensors", ".js", ".html", ".css")


class SourceTree:
    """The project's files, now or at a commit, with methods to hash models and code.

    Equal hashes show that a figure (table or picture of results) is still up to date.
    """

    def __init__(self, files: Mapping[str, Callable[[], bytes]]) -> None:
        self._files = files
        self._hashes: dict[tuple[str, bool], str] = {}

    @classmethod
    def from_work_tree(cls) -> SourceTree:
        """Return the source tree of the files as they are in the work tree now."""
        paths = (one for folder in FOLDERS for one in sorted((ROOT / folder).rglob("*")))
        return cls(
            {
                path.relative_to(ROOT).as_posix(): path.read_bytes
                for path in paths
                if path.suffix in SUFFIXES and path.is_file()
            }
        )

    @classmethod
    def from_commit(cls, commit: str) -> SourceTree:
        """Return the source tree of the files as they were at a commit."""
        archive = subprocess.run(
            ["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            files = {
                one.name: file.read()
                for one in tar.getmembers()
                if one.name.endswith(SUFFIXES) and (file := tar.extractfile(one))
            }
        return cls({name: partial(bytes, data) for name, data in files.items()})

    def hash_model(self, name: str) -> str:
        """Return the hash of the file of the model with this name, or "" if there is no file."""
        path = f"models/{name}.safetensors"
        return self._hash_file(path, only_imports=False) if path in self._files else ""

    def hash_code(self, code_path: str) -> str:
        """Return a hash of the code in a file or folder, or "" if it does not exist.

        With the words "imports of " before the path only the import statements are hashed.
        """
        path = code_path.removeprefix("imports of ")
        names = sorted(one for one in self._files if one == path or one.startswith(f"{path}/"))
        lines = [
            f"{name} {self._hash_file(name, only_imports=code_path != path)}" for name in names
        ]
        return _compute_short_hash("\n".join(lines).encode()) if lines else ""

    def _hash_file(self, name: str, *, only_imports: bool) -> str:
        if (name, only_imports) not in self._hashes:
            data = self._files[name]()
            if name.endswith(".py"):
                data = (
                    _extract_imports(data) if only_imports else _strip_comments_and_docstrings(data)
                )
            self._hashes[name, only_imports] = _compute_short_hash(data)
        return self._hashes[name, only_imports]


def hash_inputs(figure: PageFigure, tree: SourceTree) -> dict[str, str]:
    """Return the hashes of what a figure depends on, by "command", "model NAME" and "code PATH".

    The hash of a model or code that does not exist is "".
    """
    commands = "\n".join(one.command for one in figure.commands)
    hashes = {"command": _compute_short_hash(commands.encode())}
    hashes |= {f"model {one}": tree.hash_model(one) for one in figure.models}
    hashes |= {f"code {one}": tree.hash_code(one) for one in figure.code}
    return hashes


def _strip_comments_and_docstrings(source: bytes) -> bytes:
    """Return the source text of a module without comments, docstrings and blank lines."""
    lines = source.decode().splitlines()
    for token in tokenize.tokenize(io.BytesIO(source).readline) if b"#" in source else ():
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            for row in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines[row - 1] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip()).encode()


def _extract_imports(source: bytes) -> bytes:
    """Return the import statements of a module, sorted, as text."""
    nodes = (
        one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Import | ast.ImportFrom)
    )
    return "\n".join(sorted(ast.unparse(node) for node in nodes)).encode()


def _compute_short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
