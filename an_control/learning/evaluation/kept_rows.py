"""A table's rows in a file, one by one, so that a table that was stopped does not start over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from an_control.learning.rollout.episode import Result
from an_control.system.files import read_regular, write_whole


class KeptRows:
    """Results by protocol, and `about`: what decides them beside it.

    Raises ValueError where the file is of another table, or of none.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self._rows: dict[str, list[Result]] = {}
        self._path, self._about = path, dict(about)
        if not path.exists():
            return
        try:
            kept = json.loads(read_regular(path))
            before = {name: kept["about"][name] for name in about}
            for protocol, episodes in kept["rows"].items():
                self._rows[protocol] = [_result(one) for one in episodes]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path}: has no rows of a table") from error
        for name, value in about.items():
            if before[name] != value:
                raise ValueError(f"{path}: {name} was {before[name]}, not {value}")

    def row(self, protocol: str, *, stepwise: bool) -> list[Result] | None:
        """What was kept; None where that is nothing, or lacks each step's reward and `stepwise`
        asks for that: compiled rollouts played it then."""
        row = self._rows.get(protocol)
        if row is None or (stepwise and any(len(one.rewards) < one.steps for one in row)):
            return None
        return row

    def keep(self, protocol: str, results: Sequence[Result]) -> None:
        """Add a row. WriteError where the file cannot be written; it is as before then."""
        self._rows[protocol] = list(results)
        rows = {name: [_plain(one) for one in row] for name, row in self._rows.items()}
        write_whole(self._path, json.dumps({"about": self._about, "rows": rows}))

    def drop(self) -> None:
        """Delete the file: the table is written."""
        self._path.unlink()


def _plain(result: Result) -> dict[str, Any]:
    return {**asdict(result), "rewards": result.rewards.tolist()}


def _result(episode: Mapping[str, Any]) -> Result:
    values = {one.name: episode[one.name] for one in fields(Result)}
    values |= {"rewards": np.array(values["rewards"]), "rewired": tuple(values["rewired"])}
    return Result(**values)
