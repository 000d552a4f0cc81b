"""Faults of the policy node's process, files and parameters, and of who else is there."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.srv import ListParameters, SetParameters
from rclpy.parameter import Parameter
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from an_control.system.share import find_share_path
from campaign.participants import START_S, moved
from campaign.policy_process import PolicyProcess, real_executable
from campaign.robot_under_test import RobotUnderTest

REPLY_S, DISCOVERY_S = 10.0, 0.5
HOSTILE: tuple[Any, ...] = (
    "", "\0", "../" * 500, "x" * 100_000, "/dev/zero", "/proc/self/mem", "\ud7ff\U0010ffff",
    -1, 2**63 - 1, float("nan"), float("inf"), 1e308, True, [], ["a"], [1.5, float("nan")],
)  # fmt: skip


@contextmanager
def estop(robot: RobotUnderTest, by: str) -> Iterator[None]:
    """The e-stop is latched by topic or service, and reset at the end."""
    _client(robot, Trigger, "policy/reset_estop")
    if by == "topic":
        robot.until(lambda: robot.estop.get_subscription_count() == 2, REPLY_S)
        robot.play(DISCOVERY_S)
        robot.broken_s = time.monotonic()
        robot.estop.publish(Bool(data=True))
        yield
    else:
        call(robot, Trigger, "policy/estop", Trigger.Request(), wait=False)
        yield
    call(robot, Trigger, "policy/reset_estop", Trigger.Request())


@contextmanager
def ended(robot: RobotUnderTest, by: str) -> Iterator[None]:
    """The node gets a signal, perhaps while its policy hangs, and is started again."""
    *broken, name = by.split(" then ")
    if broken:
        robot.policy.breakage.write_text(broken[0])
        robot.policy.signal(signal.SIGUSR1)
    robot.policy.signal(getattr(signal, name))
    yield
    robot.policy.stop()
    robot.policy.start()


@contextmanager
def two_policies(robot: RobotUnderTest) -> Iterator[None]:
    """A second policy node commands the same robot."""
    second = PolicyProcess(robot.policy.folder, "second")
    second.start()
    yield
    second.signal(signal.SIGINT)
    robot.until(lambda: not second.running, REPLY_S)
    second.stop()


@contextmanager
def hostile_parameters(robot: RobotUnderTest) -> Iterator[None]:
    """Every parameter is set to what it should not be."""
    listed = call(robot, ListParameters, "policy/list_parameters", ListParameters.Request())
    for name in listed.result.names if listed is not None else ():
        for value in HOSTILE:
            topic = name.endswith(".topic") and value in ("/dev/zero", "/proc/self/mem")
            if not topic and (name, value) != ("shadow", True):  # which they may well be
                set_parameter(robot, name, value)
    yield
    for name, value in (
        ("use_sim_time", False),
        *((f"sources.{source.name}.topic", source.topic) for source in robot.wiring.sources),
    ):
        set_parameter(robot, name, value)


@contextmanager
def garbage_model(robot: RobotUnderTest, seed: int = 0) -> Iterator[None]:
    """The model's file turns into noise, and the parameter `model` names it."""
    good = robot.policy.model.read_bytes()
    robot.policy.model.write_bytes(random.Random(seed).randbytes(len(good)))
    set_parameter(robot, "model", str(robot.policy.model))
    yield
    robot.policy.model.write_bytes(good)
    set_parameter(robot, "model", str(robot.policy.model))


def set_parameter(robot: RobotUnderTest, name: str, value: Any) -> None:
    """Set a parameter of the policy node while the robot goes on."""
    parameter = Parameter(name, value=value).to_parameter_msg()
    request = SetParameters.Request(parameters=[parameter])
    call(robot, SetParameters, "policy/set_parameters", request)


@contextmanager
def disk_full(robot: RobotUnderTest) -> Iterator[None]:
    """The node can write to no file any more, as on a full disk, and is given much to log."""
    _, hard = resource.prlimit(robot.policy.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(robot.policy.pid, resource.RLIMIT_FSIZE, (0, hard))
    for _ in range(20):
        call(robot, Trigger, "policy/estop", Trigger.Request())
        call(robot, Trigger, "policy/reset_estop", Trigger.Request())
    yield
    resource.prlimit(robot.policy.pid, resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def inactive(robot: RobotUnderTest) -> Iterator[None]:
    """The node is deactivated, and activated again at the end."""
    _client(robot, ChangeState, "policy/change_state")
    robot.broken_s = time.monotonic()
    _change(robot, Transition.TRANSITION_DEACTIVATE)
    yield
    activate(robot)


@contextmanager
def other_model(robot: RobotUnderTest, name: str) -> Iterator[None]:
    """Another model that ships takes over while the Ant walks, and the Ant keeps walking."""
    set_parameter(robot, "model", str(find_share_path(f"models/{name}.safetensors")))
    yield
    set_parameter(robot, "model", str(robot.policy.model))


@contextmanager
def rewired(robot: RobotUnderTest, source: str) -> Iterator[None]:
    """A source moves to another topic, and the node is told; at the end it moves back."""
    with moved(robot, source) as (topic, other):
        set_parameter(robot, f"sources.{source}.topic", other)
        yield
        set_parameter(robot, f"sources.{source}.topic", topic)


@contextmanager
def changed_file(robot: RobotUnderTest, changes: dict[str, Any]) -> Iterator[None]:
    """The wiring's file says something else, and is read again; at the end as before."""
    content = robot.policy.wiring.read_bytes()
    robot.policy.change_wiring(changes)
    robot.begin()
    answer = call(robot, Trigger, "policy/reload_wiring", Trigger.Request())
    if answer is None or not answer.success:
        robot.complaints.append(f"the wiring is not taken: {answer and answer.message}")
    yield
    robot.policy.wiring.write_bytes(content)
    call(robot, Trigger, "policy/reload_wiring", Trigger.Request())


@contextmanager
def started(robot: RobotUnderTest, robot_after_s: float = 0.0) -> Iterator[None]:
    """The policy node is started anew; the robot comes so long after it is configured."""
    robot.policy.stop()
    robot.begin()
    robot.policy.start()
    if robot_after_s:
        robot.shut()
        since = robot.log_bytes
        robot.until(lambda: "configured: " in robot.policy.logged(since), START_S)
        robot.play(robot_after_s)
        robot.open()
    robot.acting()
    robot.broken_s = time.monotonic()
    yield


@contextmanager
def stalled(robot: RobotUnderTest, silent_after_s: float, for_s: float) -> Iterator[None]:
    """The process stands still for `for_s`; the sources fall silent meanwhile, and stay so.

    What counts is what it does when it runs again, with nothing but old messages waiting.
    """
    robot.policy.signal(signal.SIGSTOP)
    robot.play(silent_after_s)
    robot.deliver = lambda topic, message: None
    robot.play(for_s - silent_after_s)
    robot.broken_s = time.monotonic()
    robot.policy.signal(signal.SIGCONT)
    yield
    robot.deliver = robot.publish


@contextmanager
def interrupted_start(
    robot: RobotUnderTest, from_s: float, to_s: float, ends_s: float = 2.0
) -> Iterator[None]:
    """The node, as users start it, gets SIGINT while it starts; it must end without a traceback."""
    robot.policy.stop()
    since = robot.policy.log_bytes
    robot.policy.start(executable=real_executable())
    after_s = robot.random.uniform(from_s, to_s)
    robot.play(after_s)
    robot.broken_s = time.monotonic()
    robot.policy.signal(signal.SIGINT)
    where = f"interrupted {after_s:.2f} s after its start"
    if not robot.until(lambda: not robot.policy.running, ends_s):
        robot.complaints.append(f"{where}, it runs on for more than {ends_s:g} s")
    if "Traceback" in (log := robot.policy.logged(since)):
        robot.complaints.append(f"{where}, it logs a traceback: {log.splitlines()[-1]}")
    yield
    robot.policy.stop()
    robot.policy.start()


@contextmanager
def large_model(robot: RobotUnderTest, mb: int) -> Iterator[None]:
    """The node is told to take a file that says it is a model of that size, all zeros."""
    path = robot.policy.folder / "large.safetensors"
    size = mb * 10**6
    array = {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": _metadata(robot.policy.model), "w": array}).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    robot.begin()
    set_parameter(robot, "model", str(path))
    yield
    path.unlink()


def _metadata(model: Path) -> Any:
    """What a model file says beside its arrays."""
    content = model.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]


@contextmanager
def fifo_wiring(robot: RobotUnderTest) -> Iterator[None]:
    """The wiring's file has become a FIFO that nobody writes, and the node is to read it again."""
    path = robot.policy.wiring
    content = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    answer = call(robot, Trigger, "policy/reload_wiring", Trigger.Request())
    if answer is None or answer.success:
        told = f"no answer within {REPLY_S:g} s" if answer is None else "accepted"
        robot.complaints.append(f"a wiring that is a FIFO: {told}, not refused")
    yield
    with suppress(OSError):  # who waits for a writer waits no longer
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    path.unlink()
    path.write_bytes(content)


def activate(robot: RobotUnderTest) -> None:
    """Activate the node, as an operator does after a tick that failed."""
    _change(robot, Transition.TRANSITION_ACTIVATE)


def reset(robot: RobotUnderTest) -> None:
    """Begin an episode of the policy, as a simulator does when it puts the robot back."""
    call(robot, Trigger, "policy/reset_state", Trigger.Request())


def _change(robot: RobotUnderTest, transition: int) -> None:
    request = ChangeState.Request(transition=Transition(id=transition))
    call(robot, ChangeState, "policy/change_state", request)


def _client(robot: RobotUnderTest, type_: Any, service: str) -> Any:
    """A client that the service knows."""
    client = robot.clients.get(service)
    if client is None:
        client = robot.clients[service] = robot.node.create_client(type_, service)
        robot.play(DISCOVERY_S)
    robot.until(client.service_is_ready, REPLY_S)
    return client


def call(
    robot: RobotUnderTest, type_: Any, service: str, request: Any, *, wait: bool = True
) -> Any:
    """Call a service while the robot goes on; None without a reply in time.

    Without waiting for it, the call is what breaks.
    """
    client = _client(robot, type_, service)
    if not wait:
        robot.broken_s = time.monotonic()
    future = client.call_async(request)
    if not wait:
        return None
    robot.until(future.done, REPLY_S)
    return future.result() if future.done() else None
