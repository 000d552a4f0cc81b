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

    It also processes ROS messages while the run waits. All methods except `stop` must be called on
    the run's thread.

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

    def spin(self, until_s: float) -> bool:
        """Process ROS messages that have arrived, or wait for a short time until some arrive.

        Args:
            until_s: The time of the steady clock in seconds at which to stop waiting.

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
        """Note that an episode starts, and answer the calls of the reset service that led to it."""
        self._running = True
        while self._resets:
            self._resets.pop().set_result("")

    def end_episode(self) -> None:
        """Note that the episode has ended, so that a reset is answered when the next one starts."""
        self._running = False
        self._answer_pause_requests()

    def wait_while_paused(self) -> bool:
        """Wait, if the run is paused, until a client resumes it or requests a step.

        Returns:
            Whether there was a wait.
        """
        waited = False
        while self._paused and not self._steps:
            waited = True
            self.spin(np.inf)
        self._stepping = True
        return waited

    def answer_waiting_requests(self) -> None:
        """Answer the calls of the services for pause and step that wait for the end of a step."""
        self._answer_pause_requests()
        if self._steps:
            self._steps.pop(0).set_result("")

    def stop(self) -> None:
        """Make every wait raise StopRequestedError; safe to call from a signal handler."""
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

    def _answer_pause_requests(self) -> None:
        """Answer the calls of the pause service, because the current step has ended."""
        self._stepping = False
        while self._pauses:
            self._pauses.pop().set_result("")

    def _on_pause(self, request: Any, response: Any) -> Any:
        """Pause or resume on request of a client; a pause is answered after the current step."""
        self._paused = bool(request.data)
        if self._paused and self._stepping:
            return _reply_when_done(self._pauses, response)
        response.success = True
        return response

    def _on_step(self, request: Any, response: Any) -> Any:
        """Make one step of a paused run on request of a client, who is answered after the step."""
        if not self._paused:
            response.success, response.message = False, "not paused: call ~/pause first"
            return response
        return _reply_when_done(self._steps, response)

    def _on_reset(self, request: Any, response: Any) -> Any:
        """Restart the episode on request of a client, who is answered when it starts."""
        return _reply_when_done(self._resets, response)


def _reply_when_done(queue: list[Future[str]], response: Any) -> Future[Any]:
    """Return the Future of a service's response, which is sent once the request is carried out.

    Args:
        queue: A list to which another Future is added. The run sets its result when the request is
            carried out: "" after a success, else the reason of the failure.
        response: The response object, which is filled from that result.
    """
    done: Future[str] = Future()
    reply: Future[Any] = Future()
    queue.append(done)

    def reply_with_result(done: Future[str]) -> None:
        """Send the response with the result of the request."""
        response.message = done.result()
        response.success = not response.message
        reply.set_result(response)

    done.add_done_callback(reply_with_result)
    return reply
