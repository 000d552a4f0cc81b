"""A new model for a running controller: checked before it is accepted, dry-run aside, then swapped.

The file is read and checked on the executor's thread, so that a bad one is refused with a reason.
Building its engine can take seconds (numba compiles), so that happens on a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from an_control.policy import (
    EngineName,
    Model,
    Monitor,
    dry_run,
    make_policy,
    monitor_of,
    read_model,
)
from an_control.ros.controller import Controller


class Swap:
    """Swaps the policy of one controller.

    Args:
        failed: called from another thread with the reason why an accepted model could not act.
    """

    def __init__(
        self,
        controller: Controller,
        engine: EngineName | None,
        monitor: Monitor | None,
        failed: Callable[[str], object],
    ) -> None:
        self._controller, self._engine, self._monitor = controller, engine, monitor
        self._failed = failed
        self._checked: tuple[str, Model] | None = None
        self._newest = 0

    def refusal(self, path: str, check_rate: bool) -> str:
        """Why the model cannot take over, or an empty string: then `start` will take it."""
        try:
            model = read_model(path)
            self._controller.check(path, model)
            monitor_of(model, self._monitor)
        except ValueError as error:
            return str(error)
        if check_rate and (reason := self._controller.rate_refusal(model)):
            return reason
        self._checked = path, model
        return ""

    def start(self) -> None:
        """Build the model that was checked last, and let it act from the tick after that on."""
        if self._checked is not None:
            (path, model), self._checked = self._checked, None
            self._newest += 1
            arguments = path, model, self._newest
            threading.Thread(target=self._build, args=arguments, name="swap", daemon=True).start()

    def _build(self, path: str, model: Model, number: int) -> None:
        try:
            policy = make_policy(model, self._monitor, engine=self._engine)
            dry_run(policy)
        except Exception as error:
            self._failed(f"{path}: {error}")
            return
        if number == self._newest:
            self._controller.swap(path, policy)
