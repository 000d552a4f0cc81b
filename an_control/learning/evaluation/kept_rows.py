"""A table's rows in a file, one by one, so that a table that was stopped does not start over."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from an_control.learning.rollout.episode import Result


class KeptRows:
    """Results by protocol, a line of JSON each below a first line that says what was played.

    Raises ValueError where the file is of another table, or none of these.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.rows: dict[str, list[Result]] = {}
        self._path = path
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]  # the last may have been cut off
        if not whole:
            path.write_text(json.dumps(about) + "\n")
            return
        try:
            before, *rows = map(json.loads, whole)
            for name, value in about.items():
                if before[name] != value:
                    raise ValueError(f"{path}: {name} was {before[name]}, not {value}")
            for row in rows:
                self.rows[row["protocol"]] = [_result(one) for one in row["episodes"]]
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path}: has no rows of a table") from error
        path.write_text("".join(whole))

    def keep(self, protocol: str, results: Sequence[Result]) -> None:
        """Add a row; once this returns, it survives a loss of power."""
        episodes = [{**asdict(one), "rewards": one.rewards.tolist()} for one in results]
        with self._path.open("a") as file:
            file.write(json.dumps({"protocol": protocol, "episodes": episodes}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.rows[protocol] = list(results)

    def drop(self) -> None:
        """Delete the file: the table is written."""
        self._path.unlink()


def _result(episode: Mapping[str, Any]) -> Result:
    values = {one.name: episode[one.name] for one in fields(Result)}
    values |= {"rewards": np.array(values["rewards"]), "rewired": tuple(values["rewired"])}
    return Result(**values)
