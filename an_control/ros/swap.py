"""A new model for a running controller: refused at once or later, or dry-run aside, then swapped.

What the file's size and header say is checked on the executor's thread, between two ticks. Reading
and building the rest can take seconds, so that happens on a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from an_control.control.controller import Controller
from an_control.load import EngineName, dry_run, make_policy, monitor_of
from an_control.policy import Model, Monitor, Policy, read_header, read_model
from an_control.policy.recovery import recovery_of

QUICK_HEADER = 2**16
"""Bytes of a header that are parsed in less than 2 ms; a longer one is not looked at at once."""


class Swap:
    """Swaps the policy of one controller.

    Args:
        check_rate: refuse a model that was trained at another rate.
        recovery: as that of `load_policy`.
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
        recovery: float | None = None,
    ) -> None:
        self._controller, self._engine, self._monitor = controller, engine, monitor
        self._failed, self._check_rate = failed, check_rate
        self._recovery = recovery
        self._changed = threading.Condition()
        self._newest: str | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

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
        with self._changed:
            self._newest = path
            self._controller.new_model = f"checking {path}"
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="swap", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """No model takes over any more; the one that is being built is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _check(self, path: str, model: Model) -> None:
        """ValueError saying why the model cannot take over."""
        self._controller.check(path, model)
        monitor_of(model, self._monitor)
        recovery_of(model, self._recovery)
        if self._check_rate and (reason := self._controller.rate_refusal(model)):
            raise ValueError(reason)

    def _run(self) -> None:
        """One model after the other on one thread, as each thread keeps memory of its own."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._newest is not None or self._closed)
                if self._closed:
                    return
                path, self._newest = self._newest, None
            assert path is not None
            self._swap(path)

    def _swap(self, path: str) -> None:
        """Build this model and let it act, unless another one was wanted meanwhile."""
        built = self._build(path)
        with self._changed:
            if self._newest is not None or self._closed:
                return
            if isinstance(built, str):
                self._controller.new_model = f"refused: {built}"
            else:
                self._controller.swap(path, built)
        if isinstance(built, str):
            self._failed(built)

    def _build(self, path: str) -> Policy | str:
        """The policy, or why it cannot take over."""
        try:
            model = read_model(path)
            self._check(path, model)
            policy = make_policy(model, self._monitor, engine=self._engine, recovery=self._recovery)
            dry_run(policy)
        except Exception as error:
            reason = str(error) or repr(error)
            return reason if path in reason else f"{path}: {reason}"
        return policy
