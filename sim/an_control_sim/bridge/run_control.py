"""Stop, pause and restart a run while it waits, with the services ~/pause, ~/step and ~/reset."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.task import Future
from std_srvs.srv import SetBool, Trigger

from an_control.ros.distributions import create_deferred_service
from an_control_sim.process import SLICE_S, make_events_executor


class StopRequestedError(Exception):
    """Exception that ends a run after `RunControl.stop`."""


class RestartRequestedError(Exception):
    """Exception that restarts the episode after a call of the reset service."""


class RunControl:
    """Control of a run: processes the node's messages while the run waits, and interrupts the wait.

    All methods except `stop` must be called on the run's thread.

    Args:
        node: The node; its services are created here.
    """

    def __init__(self, node: Node) -> None:
        self.executor = make_events_executor(node.context)
        """Executor of the node; other nodes may be added."""
        self.executor.add_node(node)
        self._node = node
        self._paused = self._stepping = self._running = self._stopping = False
        self._pauses: list[Future[str]] = []
        self._steps: list[Future[str]] = []
        self._resets: list[Future[str]] = []
        create_deferred_service(node, SetBool, "~/pause", self._on_pause)
        create_deferred_service(node, Trigger, "~/step", self._on_step)
        create_deferred_service(node, Trigger, "~/reset", self._on_reset)

    def spin(self, until_s: float) -> bool:
        """Process messages that have arrived, or wait for some.

        Args:
            until_s: Time of the steady clock in seconds at which to stop waiting.

        Returns:
            False once `until_s` has passed, else True.

        Raises:
            StopRequestedError: `stop` was called.
            RestartRequestedError: The reset service was called during an episode.
        """
        left_s = until_s - time.monotonic()
        if left_s <= 0.0:
            return False
        self.executor.spin_once(timeout_sec=min(left_s, SLICE_S))
        if self._stopping:
            raise StopRequestedError
        if self._resets and self._running:
            raise RestartRequestedError
        return True

    def start_episode(self) -> None:
        """Start an episode and answer the resets that asked for it; later ones restart it."""
        self._running = True
        while self._resets:
            self._resets.pop().set_result("")

    def end_episode(self) -> None:
        """End the episode; later resets wait for the next one."""
        self._running = False
        self._end_pauses()

    def start_step(self) -> bool:
        """Wait while paused until a step is requested; return whether this has waited."""
        waited = False
        while self._paused and not self._steps:
            waited = True
            self.spin(np.inf)
        self._stepping = True
        return waited

    def end_step(self) -> None:
        """Answer pending requests for this step or for a pause."""
        self._end_pauses()
        if self._steps:
            self._steps.pop(0).set_result("")

    def stop(self) -> None:
        """End every wait with StopRequestedError; safe to call from a signal handler."""
        self._stopping = True

    def close(self) -> None:
        """Answer pending service calls and release the node."""
        waiting = self._steps + self._resets + self._pauses
        for future in waiting:
            future.set_result("the simulator is stopping")
        for _ in waiting:
            self.executor.spin_once(timeout_sec=SLICE_S)
        self.executor.remove_node(self._node)
        self.executor.shutdown()

    def _end_pauses(self) -> None:
        self._stepping = False
        while self._pauses:
            self._pauses.pop().set_result("")

    def _on_pause(self, request: Any, response: Any) -> Any:
        """Pause or resume; a pause is answered after the current step."""
        self._paused = bool(request.data)
        if self._paused and self._stepping:
            return _reply_when_done(self._pauses, response)
        response.success = True
        return response

    def _on_step(self, request: Any, response: Any) -> Any:
        if not self._paused:
            response.success, response.message = False, "not paused: call ~/pause first"
            return response
        return _reply_when_done(self._steps, response)

    def _on_reset(self, request: Any, response: Any) -> Any:
        return _reply_when_done(self._resets, response)


def _reply_when_done(queue: list[Future[str]], response: Any) -> Future[Any]:
    """Return the future of a service's response, which is sent once the request is done.

    The future in `queue` is resolved with "" for success, or with the reason of a failure.
    """
    done: Future[str] = Future()
    reply: Future[Any] = Future()
    queue.append(done)

    def tell(done: Future[str]) -> None:
        response.message = done.result()
        response.success = not response.message
        reply.set_result(response)

    done.add_done_callback(tell)
    return reply
