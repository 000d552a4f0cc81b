"""A new model for a running controller: refused at once or later, or dry-run aside, then swapped.

What the file's size and header say is checked on the executor's thread, between two ticks. Reading
and building the rest can take seconds, so that happens on a thread of its own.
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
    read_header,
    read_model,
)
from an_control.ros.controller import Controller

QUICK_HEADER = 2**16
"""Bytes of a header that are parsed in less than 2 ms; a longer one is not looked at at once."""


class Swap:
    """Swaps the policy of one controller.

    Args:
        check_rate: refuse a model that was trained at another rate.
        failed: called from another thread with the reason why an accepted model could not act.
    """

    def __init__(
        self,
        controller: Controller,
        engine: EngineName | None,
        monitor: Monitor | None,
        failed: Callable[[str], object],
        *,
        check_rate: bool = True,
    ) -> None:
        self._controller, self._engine, self._monitor = controller, engine, monitor
        self._failed, self._check_rate = failed, check_rate
        self._newest = 0
        self._one_build, self._one_result = threading.Lock(), threading.Lock()

    def refusal(self, path: str) -> str:
        """Why the model cannot take over, as far as its header says, or an empty string."""
        try:
            model = read_header(path, QUICK_HEADER)
            if model is not None:
                self._check(path, model)
        except ValueError as error:
            return str(error)
        return ""

    def start(self, path: str) -> None:
        """Read and build this model, and let it act from the tick after that on."""
        with self._one_result:
            self._newest += 1
            self._controller.new_model = f"checking {path}"
        arguments = path, self._newest
        threading.Thread(target=self._build, args=arguments, name="swap", daemon=True).start()

    def _check(self, path: str, model: Model) -> None:
        """ValueError saying why the model cannot take over."""
        self._controller.check(path, model)
        monitor_of(model, self._monitor)
        if self._check_rate and (reason := self._controller.rate_refusal(model)):
            raise ValueError(reason)

    def _build(self, path: str, number: int) -> None:
        """One model at a time; who is overtaken by a newer one is not built, and never acts."""
        with self._one_build:
            if number != self._newest:
                return
            reason = ""
            try:
                model = read_model(path)
                self._check(path, model)
                policy = make_policy(model, self._monitor, engine=self._engine)
                dry_run(policy)
            except Exception as error:
                reason = str(error) or repr(error)
                if path not in reason:
                    reason = f"{path}: {reason}"
        with self._one_result:
            if number != self._newest:
                return
            if reason:
                self._controller.new_model = f"refused: {reason}"
            else:
                self._controller.swap(path, policy)
        if reason:
            self._failed(reason)
