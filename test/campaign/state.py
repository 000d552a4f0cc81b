"""What a campaign has seen so far, in a file: one that was ended makes the tries it lacks later."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import an_control
import an_control_sim
from an_control.system.share import find_share_path
from campaign.outcome import Outcome, Seen

_SEEN = {field.name for field in fields(Seen)}
_OUTCOME = {field.name for field in fields(Outcome)}


class StateError(ValueError):
    """A state that is no state, or one of another campaign; says which file and why."""


def campaign_of(plan: Path, load: int) -> dict[str, str]:
    """What the tries of one campaign have in common: those of two are not to be counted as one."""
    packages = [Path(str(one.__file__)).parent for one in (an_control, an_control_sim)]
    packages.append(Path(__file__).parent)
    robot = [find_share_path(f"config/{name}.yaml") for name in ("ant", "ant_sim")]
    return {
        "plan": _digest([plan]),
        "model": _digest([find_share_path("models/ant.safetensors")]),
        "code": _digest(path for one in packages for path in sorted(one.rglob("*.py"))),
        "robot": _digest(robot),
        "load": f"{load} busy processes",
    }


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


class State:
    """The tries of each fault, and the outcomes of mutated files.

    Args:
        path: where they are kept, after each try; None: nowhere.
        campaign: as of `campaign_of`.

    Raises StateError where the file cannot be read or written, or is of another campaign.
    """

    def __init__(self, path: Path | None = None, campaign: Mapping[str, str] | None = None) -> None:
        self._path, self._campaign = path, dict(campaign or {})
        self.files: list[Outcome] = []
        self.tries: dict[str, list[Seen]] = {}
        if path is not None and path.exists():
            self._load(path)
        self._save()

    def add(self, fault: str, seen: Seen) -> None:
        """Keep one more try."""
        self.tries.setdefault(fault, []).append(seen)
        self._save()

    def keep(self, files: list[Outcome]) -> None:
        """Keep what mutated files gave."""
        self.files = files
        self._save()

    def _load(self, path: Path) -> None:
        try:
            state = json.loads(path.read_bytes())
            campaign = dict(state["campaign"])
            self.files = [Outcome(**_known(one, _OUTCOME)) for one in state["files"]]
            self.tries = {
                str(fault): [Seen(**_known(one, _SEEN)) for one in tries]
                for fault, tries in state["tries"].items()
            }
        except OSError as error:
            raise StateError(f"{path}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StateError(f"{path}: is not the state of a campaign") from error
        other = [key for key, value in self._campaign.items() if campaign.get(key) != value]
        if other:
            raise StateError(
                f"{path}: is of a campaign with another {' and another '.join(other)};"
                " give another file, or delete this one to begin anew"
            )

    def _save(self) -> None:
        if self._path is None:
            return
        state = {
            "campaign": self._campaign,
            "files": [asdict(one) for one in self.files],
            "tries": {fault: [asdict(one) for one in tries] for fault, tries in self.tries.items()},
        }
        partial = self._path.with_name(f"{self._path.name}.part")
        try:
            partial.write_text(json.dumps(state), encoding="utf-8")
            os.replace(partial, self._path)
        except OSError as error:
            raise StateError(f"{self._path}: {error.strerror}") from error


def _known(values: Any, names: set[str]) -> dict[str, Any]:
    if set(values) != names:
        raise ValueError("other fields")
    return dict(values)
