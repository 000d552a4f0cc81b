"""The soak: a long run of the policy node under random faults; does anything grow or slow down, and
does the robot walk again after each of them?

The node is a real one, with its subscriptions, publishers, parameters and services, and it walks
the Ant; but the readings are handed to its subscriptions' callbacks instead of travelling, and
time is the stamps' (lockstep), so that it ticks as fast as it can.
"""

from __future__ import annotations

import copy
import gc
import os
import random
import time
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool

from an_control.ros.node import PolicyNode
from an_control.system.priority import exclude_existing_objects_from_gc
from an_control.system.share import find_share_path
from an_control.wiring import load_wiring
from campaign.plan import WALKS_S
from campaign.robot_under_test import WALKING_M_S, WINDOW_S, endless_ant

FAULT_EVERY, SPIN_EVERY = 400, 100
STEP_NS = 16_500_000
WALKS_TICKS, SPEED_TICKS = round(WALKS_S * 1e9 / STEP_NS), round(WINDOW_S * 1e9 / STEP_NS)
EPISODE_TICKS = 5000
"""After so many ticks, and where it has fallen or stands, the Ant is put back to its start."""
WARM_TICKS = 100_000
"""After so many ticks, or a tenth of a shorter soak, caches and allocators have had their fill."""
BLACK_BOX_S, SWAP_S = 0.1, 120.0
LIMIT = 250.0
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Sample:
    """One window of ticks: their durations, and what the process holds at its end."""

    ticks: int
    p50_us: float
    p99_us: float
    memory_mb: float
    handles: int
    threads: int


@dataclass
class Soaked:
    """What a soak found; `start` and `end` are medians over windows of the first and last tenth,
    `warm` over the three after WARM_TICKS.

    Of the faults that no other followed within WALKS_S, `walked` is after how many the robot walked
    by then, and `fell` after how many it had fallen; `judged` is their number.
    """

    ticks: int
    faults: int
    judged: int
    walked: int
    fell: int
    took_s: float
    start: Sample
    warm: Sample
    end: Sample

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @property
    def memory_mb(self) -> float:
        """How much resident memory grew after WARM_TICKS."""
        return self.end.memory_mb - self.warm.memory_mb

    @property
    def walks(self) -> float:
        """Share of the judged faults after which a robot that had not fallen walked."""
        return self.walked / max(1, self.judged - self.fell)

    @property
    def p50_ratio(self) -> float:
        """The median of a tick at the end, as a multiple of that at the start."""
        return self.end.p50_us / self.start.p50_us

    @property
    def p99_ratio(self) -> float:
        """The 99th percentile of a tick at the end, as a multiple of that at the start."""
        return self.end.p99_us / self.start.p99_us


class Soak:
    """Drives an active policy node through its subscriptions, on this thread.

    node        a `PolicyNode` in the Ant's namespace, not yet configured
    seed        of the faults
    """

    def __init__(self, node: PolicyNode, seed: int) -> None:
        self._node, self._random = node, random.Random(seed)
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(node)
        self._model = str(find_share_path("models/ant.safetensors"))
        wiring = str(find_share_path("config/ant.yaml"))
        values: dict[str, Any] = {"wiring": wiring, "model": self._model, "mode": "lockstep"}
        # A black box grows until it is full, by the clock: of 30 s it is not within a short soak.
        values["black_box_s"] = BLACK_BOX_S
        node.set_parameters([Parameter(name, value=value) for name, value in values.items()])
        node.trigger_configure()
        node.trigger_activate()
        self._robot = endless_ant()
        self._messages = {one.topic: one.message for one in self._robot.sensor_topics}
        self._command = JointState(name=list(load_wiring(wiring).command.names))
        self._walked_m: deque[float] = deque(maxlen=SPEED_TICKS)
        self._fault_age, self._age = -1, 0
        self.judged = self.walked = self.fell = 0
        self._durations_s: list[float] = []
        self._stamp_ns = 10**18
        self.faults = 0
        node.create_subscription(JointState, "joint_commands", self._check, 10)
        exclude_existing_objects_from_gc()  # as the policy node's main does

    def _check(self, command: JointState) -> None:
        assert (np.abs(np.array(command.effort)) <= LIMIT).all(), command

    def _swap_models(self) -> None:
        """Let new models act: the first two make the process 8 MB and 6 MB larger, once."""
        acting = self._node._get_configured_loop().controller.acting
        for _ in range(3):
            self._node.set_parameters([Parameter("model", value=self._model)])
            end_s = time.monotonic() + SWAP_S
            while acting.new_model:
                assert time.monotonic() < end_s, acting.new_model
                self._tick()

    def run(self, ticks: int, report: Callable[[int, Sample], object] = lambda *_: None) -> Soaked:
        """Tick that often; AssertionError where a command is not finite or over its limit."""
        self._swap_models()
        begin_s, window = time.monotonic(), max(100, ticks // 100)
        samples: list[Sample] = []
        while len(samples) * window < ticks:
            self._durations_s.clear()
            while len(self._durations_s) < window:
                self._tick()
            samples.append(self._sample((len(samples) + 1) * window))
            report(samples[-1].ticks, samples[-1])
        edge = max(1, len(samples) // 10)
        warm = min(edge, WARM_TICKS // window)
        return Soaked(
            ticks=samples[-1].ticks,
            faults=self.faults,
            judged=self.judged,
            walked=self.walked,
            fell=self.fell,
            took_s=time.monotonic() - begin_s,
            start=_median(samples[1 : max(2, edge)]),  # the first one warms caches up
            warm=_median(samples[warm : warm + 3]),
            end=_median(samples[-edge:]),
        )

    def close(self) -> None:
        """Let go of the executor; the node remains the caller's."""
        gc.unfreeze()
        self._executor.remove_node(self._node)
        self._executor.shutdown()
        self._robot.close()

    def _tick(self) -> None:
        number = len(self._durations_s)
        if not number % SPIN_EVERY:
            self._executor.spin_once(timeout_sec=0.0)
        self._stamp_ns += STEP_NS
        self._robot.fill_sensor_messages(self._stamp_ns)
        messages = self._messages
        if not self._random.randrange(FAULT_EVERY):
            self.faults += 1
            self._fault_age = 0
            messages = self._break(copy.deepcopy(messages))
        callbacks: dict[str, Any] = {
            one.topic_name: one.callback for one in self._node.subscriptions
        }
        begin_s = time.perf_counter()
        for topic, message in messages.items():
            callbacks[f"{self._node.get_namespace()}/{topic}"](message)
        self._durations_s.append(time.perf_counter() - begin_s)
        self._walk()

    def _walk(self) -> None:
        """The Ant makes a step under what the node sent last; how does it walk?"""
        if (sent := self._node.last_command) is not None:
            self._command.effort = array("d", sent.tobytes())
            self._robot.step(self._robot.commands.read_commands(self._command))
        self._walked_m.append(self._robot.distance_m or 0.0)
        self._age += 1
        way_m = self._walked_m[-1] - self._walked_m[0]
        walks = way_m >= WALKING_M_S * SPEED_TICKS * STEP_NS / 1e9
        if self._fault_age >= 0:
            self._fault_age += 1
            if self._fault_age >= WALKS_TICKS or self._robot.over:
                self.judged += 1
                self.walked += walks and not self._robot.over
                self.fell += self._robot.over
                self._fault_age = -1
        stands = self._age > WALKS_TICKS and not walks and self._fault_age < 0
        if self._robot.over or stands or self._age > EPISODE_TICKS:
            self._put_back()

    def _put_back(self) -> None:
        self._robot.reset(self._random.randrange(2**31))
        self._walked_m.clear()
        self._age, self._fault_age = 0, -1
        self._serve("/reset_state")

    def _break(self, messages: dict[str, Any]) -> dict[str, Any]:
        """One random fault."""
        topic = self._random.choice(list(messages))
        match self._random.randrange(8):
            case 0:
                del messages[topic]
            case 1:
                messages["joint_states"].position = array("d", [float("nan")] * 8)
            case 2:
                joints = messages["joint_states"]
                joints.velocity = array("d", [1e308] * self._random.randrange(100))
            case 3:
                messages["joint_states"].name = [f"j{self._random.random()}" for _ in range(8)]
            case 4:
                messages[topic].header.stamp.sec = self._random.randrange(2**31)
            case 5:
                self._stop()
            case 6:
                value = self._random.choice([self._model, "/dev/null", "gone"])
                self._node.set_parameters([Parameter("model", value=value)])
            case _:
                self._node.trigger_deactivate()
                self._node.trigger_activate()
        return messages

    def _stop(self) -> None:
        """The e-stop, and its reset."""
        estop: Any = next(s for s in self._node.subscriptions if s.topic_name.endswith("/estop"))
        estop.callback(Bool(data=True))
        self._serve("/reset_estop")

    def _serve(self, name: str) -> None:
        """Call one of the node's services."""
        service = next(s for s in self._node.services if s.service_name.endswith(name))
        service.callback(service.srv_type.Request(), service.srv_type.Response())

    def _sample(self, ticks: int) -> Sample:
        p50, p99 = np.percentile(self._durations_s, (50, 99)) * 1e6
        return Sample(
            ticks=ticks,
            p50_us=float(p50),
            p99_us=float(p99),
            memory_mb=int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6,
            handles=len(os.listdir("/proc/self/fd")),
            threads=len(os.listdir("/proc/self/task")),
        )


def _median(samples: list[Sample]) -> Sample:
    rows = [list(vars(sample).values()) for sample in samples]
    ticks, p50, p99, memory, handles, threads = (float(one) for one in np.median(rows, axis=0))
    return Sample(int(ticks), p50, p99, memory, int(handles), int(threads))
