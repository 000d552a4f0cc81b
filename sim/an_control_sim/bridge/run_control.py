"""Stops, pauses and restarts a simulation run, with the services ~/pause, ~/step and ~/reset."""

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
    """An exception that ends a run of episodes, raised after `RunControl.stop` was called."""


class RestartRequestedError(Exception):
    """An exception that restarts the running episode, raised after a client called `~/reset`."""


class RunControl:
    """The services by which clients pause, step and restart a run of episodes.

    It also processes the node's ROS messages while the run waits. All methods except `stop` must be
    called on the thread that runs the episodes.

    Args:
        node: The node on which the services are created.
    """

    def __init__(self, node: Node) -> None:
        self.executor = make_events_executor(node.context)
        """The executor of the node, to which other nodes may be added."""
        self.executor.add_node(node)
        self._node = node
        self._paused = self._stepping = self._running = self._stopping = False
        self._pauses: list[Future[str]] = []
        self._steps: list[Future[str]] = []
        self._resets: list[Future[str]] = []
        create_deferred_service(node, SetBool, "~/pause", self._on_pause)
        create_deferred_service(node, Trigger, "~/step", self._on_step)
        create_deferred_service(node, Trigger, "~/reset", self._on_reset)

    def spin_if_time_is_left(self, until_s: float) -> bool:
        """Process ROS messages that have arrived; if there are none, wait a short time for some.

        Call it in a loop to wait until a given time.

        Args:
            until_s: The time of `time.monotonic()` in seconds at which to stop waiting.

        Returns:
            False if `until_s` had passed already, so that nothing was processed, else True.

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

    def mark_episode_start(self) -> None:
        """Mark that an episode has started: reply to clients that requested a restart by `~/reset`.

        From now on a call of `~/reset` interrupts the episode.
        """
        self._running = True
        while self._resets:
            self._resets.pop().set_result("")

    def mark_episode_end(self) -> None:
        """Mark the episode as ended, and reply to clients that requested a pause by `~/pause`.

        A call of `~/reset` can no longer interrupt the episode. It is answered when the next
        episode begins.
        """
        self._running = False
        self._answer_pause_requests()

    def wait_while_paused_and_return_whether_waited(self) -> bool:
        """Wait as long as clients have paused the run; a call of `~/step` lets it make one step.

        Returns:
            True if there was a wait, else False.
        """
        waited = False
        while self._paused and not self._steps:
            waited = True
            self.spin_if_time_is_left(np.inf)
        self._stepping = True
        return waited

    def answer_pause_and_step_requests(self) -> None:
        """Reply to clients that wait for `~/pause` or `~/step`; call this after each step."""
        self._answer_pause_requests()
        if self._steps:
            self._steps.pop(0).set_result("")

    def stop(self) -> None:
        """Stop the run: its current or next wait raises StopRequestedError.

        This is safe to call from a signal handler.
        """
        self._stopping = True

    def close(self) -> None:
        """Reply to all pending service calls, and stop processing the node's messages."""
        waiting = self._steps + self._resets + self._pauses
        for future in waiting:
            future.set_result("the simulator is stopping")
        for _ in waiting:
            self.executor.spin_once(timeout_sec=SLICE_S)
        self.executor.remove_node(self._node)
        self.executor.shutdown()

    def _answer_pause_requests(self) -> None:
        """Answer pending calls of the pause service, because the current step has ended."""
        self._stepping = False
        while self._pauses:
            self._pauses.pop().set_result("")

    def _on_pause(self, request: Any, response: Any) -> Any:
        """Pause or resume the run for a client; a pause is answered when the current step ends."""
        self._paused = bool(request.data)
        if self._paused and self._stepping:
            return _postpone_reply(self._pauses, response)
        response.success = True
        return response

    def _on_step(self, request: Any, response: Any) -> Any:
        """Let a paused run make one step for a client, who is answered when the step ends."""
        if not self._paused:
            response.success, response.message = False, "not paused: call ~/pause first"
            return response
        return _postpone_reply(self._steps, response)

    def _on_reset(self, request: Any, response: Any) -> Any:
        """Restart the episode for a client, who is answered when the episode begins again."""
        return _postpone_reply(self._resets, response)


def _postpone_reply(pending_requests: list[Future[str]], response: Any) -> Future[Any]:
    """Postpone the answer to a service call, and return the Future that its callback must return.

    The answer is sent when a result is set in the Future that this adds to the pending requests: ""
    after a success, else the reason of the failure.
    """
    done: Future[str] = Future()
    reply: Future[Any] = Future()
    pending_requests.append(done)

    def reply_with_result(done: Future[str]) -> None:
        """Send the response, filled from the result of the request."""
        response.message = done.result()
        response.success = not response.message
        reply.set_result(response)

    done.add_done_callback(reply_with_result)
    return reply
