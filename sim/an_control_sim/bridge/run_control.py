"""Stops, pauses and restarts a run, while it waits: the services ~/pause, ~/step and ~/reset."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.task import Future
from std_srvs.srv import SetBool, Trigger

from an_control.ros.distributions import create_deferred_service
from an_control_sim.process import SLICE_S, new_executor


class Stopped(Exception):
    """`RunControl.stop` was called."""


class Restarted(Exception):
    """The reset service was called: the episode starts again."""


class RunControl:
    """Runs a node while its run waits, and ends the wait where somebody asks for that.

    All is on the run's thread but `stop`.
    """

    def __init__(self, node: Node) -> None:
        self.executor = new_executor(node.context)
        """Runs the node; whatever else shall run meanwhile can be added."""
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
        """Work on what has arrived, or wait for it; return False once `until_s` has passed.

        Raises Stopped, and within an episode Restarted.
        """
        left_s = until_s - time.monotonic()
        if left_s <= 0.0:
            return False
        self.executor.spin_once(timeout_sec=min(left_s, SLICE_S))
        if self._stopping:
            raise Stopped
        if self._resets and self._running:
            raise Restarted
        return True

    def begin_episode(self) -> None:
        """Let resets start the episode again from here on; whoever asked for this one is told."""
        self._running = True
        while self._resets:
            self._resets.pop().set_result("")

    def end_episode(self) -> None:
        """Let resets wait for the next episode."""
        self._running = False
        self._end_pauses()

    def begin_step(self) -> bool:
        """Wait while paused, until a step is asked for; return whether this has waited."""
        waited = False
        while self._paused and not self._steps:
            waited = True
            self.spin(np.inf)
        self._stepping = True
        return waited

    def end_step(self) -> None:
        """Nothing moves until the next step: answer who has asked for it, or for a pause."""
        self._end_pauses()
        if self._steps:
            self._steps.pop(0).set_result("")

    def stop(self) -> None:
        """Let every wait end with Stopped; safe to call from a signal handler."""
        self._stopping = True

    def close(self) -> None:
        """Answer who waits for a service, and let go of the node."""
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
        """Pause or continue; the reply to a pause comes once the step that runs is over."""
        self._paused = bool(request.data)
        if self._paused and self._stepping:
            return _when_done(self._pauses, response)
        response.success = True
        return response

    def _on_step(self, request: Any, response: Any) -> Any:
        if not self._paused:
            response.success, response.message = False, "not paused: call ~/pause first"
            return response
        return _when_done(self._steps, response)

    def _on_reset(self, request: Any, response: Any) -> Any:
        return _when_done(self._resets, response)


def _when_done(queue: list[Future[str]], response: Any) -> Future[Any]:
    """Reply once the run has done what was asked; its result is the reason why not."""
    done: Future[str] = Future()
    reply: Future[Any] = Future()
    queue.append(done)

    def tell(done: Future[str]) -> None:
        response.message = done.result()
        response.success = not response.message
        reply.set_result(response)

    done.add_done_callback(tell)
    return reply
