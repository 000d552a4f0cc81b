"""Hashes of what a figure depends on: its commands, its models, and its code.

Of a Python file only the statements count: comments, docstrings and blank lines may change without
making a figure stale. A file that moved or whose name changed counts as changed.
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
    """The files of the work tree or of a commit, with the hashes of their parts."""

    def __init__(self, files: Mapping[str, Callable[[], bytes]]) -> None:
        self._files = files
        self._hashes: dict[tuple[str, bool], str] = {}

    @classmethod
    def from_work_tree(cls) -> SourceTree:
        """Return the files as they lie in the clone now."""
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
        """Return the files as they were at a commit."""
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
        """Return the hash of a model file, or "" if there is none."""
        path = f"models/{name}.safetensors"
        return self._hash_file(path, imports=False) if path in self._files else ""

    def hash_code(self, part: str) -> str:
        """Return one hash of a file's or folder's code and names, or "" if there is none."""
        path = part.removeprefix("imports of ")
        names = sorted(one for one in self._files if one == path or one.startswith(f"{path}/"))
        lines = [f"{name} {self._hash_file(name, imports=part != path)}" for name in names]
        return _short("\n".join(lines).encode()) if lines else ""

    def _hash_file(self, name: str, *, imports: bool) -> str:
        if (name, imports) not in self._hashes:
            data = self._files[name]()
            if name.endswith(".py"):
                data = _imports(data) if imports else _statements(data)
            self._hashes[name, imports] = _short(data)
        return self._hashes[name, imports]


def hash_inputs(figure: PageFigure, tree: SourceTree) -> dict[str, str]:
    """Return the hash of each input of a figure, by its name; "" for one that does not exist."""
    commands = "\n".join(one.command for one in figure.commands)
    hashes = {"command": _short(commands.encode())}
    hashes |= {f"model {one}": tree.hash_model(one) for one in figure.models}
    hashes |= {f"code {one}": tree.hash_code(one) for one in figure.code}
    return hashes


def _statements(source: bytes) -> bytes:
    """Return the lines of a module without comments, docstrings and blank lines."""
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


def _imports(source: bytes) -> bytes:
    """Return the import statements of a module."""
    nodes = (
        one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Import | ast.ImportFrom)
    )
    return "\n".join(sorted(ast.unparse(node) for node in nodes)).encode()


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
