"""The policy node with a policy that breaks on demand: SIGUSR1 breaks its next tick.

How is said by the file that $AN_CONTROL_BREAKAGE names: `hang S` (that tick takes S seconds),
`slow S` (each tick takes S longer, until the next SIGUSR1), `nan` (the policy's actions are not
finite, until the next SIGUSR1), `raise`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from an_control.policy import AttentionNeuron
from an_control.ros.node import main

_step = AttentionNeuron.step_array
_broken: list[str] = []


def _toggle(number: int, frame: object) -> None:
    if _broken:
        _broken.clear()
    else:
        _broken.extend(Path(os.environ["AN_CONTROL_BREAKAGE"]).read_text().split())


def _breakable(policy: AttentionNeuron, values: Any, ids: Any) -> np.ndarray:
    action = _step(policy, values, ids)
    if not _broken:
        return action
    how, *seconds = _broken
    if how in ("hang", "raise"):
        _broken.clear()
    if how == "raise":
        raise RuntimeError("the campaign broke this tick")
    if how == "nan":
        return np.full_like(action, np.nan)
    time.sleep(float(seconds[0]))
    return action


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _toggle)
    AttentionNeuron.step_array = _breakable  # type: ignore[assignment,method-assign]
    sys.exit(main())
