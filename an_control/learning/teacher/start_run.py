"""A teacher's run that begins where another one is, to learn further under other faults."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from an_control.learning.runs.run_folder import CHECKPOINT, RunError, RunFolder
from an_control.learning.teacher.library import REPLAY
from an_control.system.files import read_regular

MAY_DIFFER = "faults", "burst"
"""Settings of the new run that need not be those of the other one."""


def begin_from(run: Path, folder: Path, config: Mapping[str, Any]) -> None:
    """Give the new run in `folder` what the other `run` has learned and seen, and its metrics.

    Its best validation is left out, as other faults give other returns. A folder that holds a
    run already is left as it is. ValueError where `run` holds none, or one that learns otherwise
    than `config` says; RunError where the disk refuses.
    """
    if (folder / CHECKPOINT).exists():
        return
    try:
        there = json.loads(read_regular(run / "config.json"))
    except (OSError, ValueError) as error:
        raise ValueError(f"--start-run {run}: holds no run ({error})") from error
    _check(run, there, json.loads(json.dumps(config)))
    source = RunFolder(run, there)
    if (state := source.last_checkpoint()) is None:
        raise ValueError(f"--start-run {run}: holds no checkpoint")
    state["best"] = -math.inf
    learner = state["learner"]
    learner["marked"] = learner["done"], learner["seconds"]
    for contender in learner["contenders"].values():
        contender |= {"best": -math.inf, "marked": -math.inf, "marked_at": 0, "first": None}
    target = RunFolder(folder, config)
    target.write("metrics.jsonl", source.read("metrics.jsonl"))
    if (run / REPLAY).exists():
        try:
            shutil.copyfile(run / REPLAY, folder / REPLAY)
        except OSError as error:
            raise RunError(f"{folder / REPLAY}: {error.strerror}") from error
    target.checkpoint(state)  # last: what never reached a checkpoint is no run


def _check(run: Path, there: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """ValueError naming the first setting that must be the same and is not."""
    pairs = [("task", there.get("task"), asked["task"])]
    pairs += [
        (name, there.get("settings", {}).get(name), value)
        for name, value in asked["settings"].items()
        if name not in MAY_DIFFER
    ]
    for name, known, value in pairs:
        if known != value:
            raise ValueError(f"--start-run {run}: its {name} is {known}, not {value}")
