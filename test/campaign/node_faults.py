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

from an_control.share import share_path
from campaign.policy_process import PolicyProcess, real_executable
from campaign.stage import Stage
from campaign.strangers import moved

REPLY_S, DISCOVERY_S = 10.0, 0.5
HOSTILE: tuple[Any, ...] = (
    "", "\0", "../" * 500, "x" * 100_000, "/dev/zero", "/proc/self/mem", "\ud7ff\U0010ffff",
    -1, 2**63 - 1, float("nan"), float("inf"), 1e308, True, [], ["a"], [1.5, float("nan")],
)  # fmt: skip


@contextmanager
def estop(stage: Stage, by: str) -> Iterator[None]:
    """The e-stop is latched by topic or service, and reset at the end."""
    _client(stage, Trigger, "policy/reset_estop")
    if by == "topic":
        stage.until(lambda: stage.estop.get_subscription_count() == 2, REPLY_S)
        stage.play(DISCOVERY_S)
        stage.broken_s = time.monotonic()
        stage.estop.publish(Bool(data=True))
        yield
    else:
        call(stage, Trigger, "policy/estop", Trigger.Request(), wait=False)
        yield
    call(stage, Trigger, "policy/reset_estop", Trigger.Request())


@contextmanager
def ended(stage: Stage, by: str) -> Iterator[None]:
    """The node gets a signal, perhaps while its policy hangs, and is started again."""
    *broken, name = by.split(" then ")
    if broken:
        stage.policy.breakage.write_text(broken[0])
        stage.policy.signal(signal.SIGUSR1)
    stage.policy.signal(getattr(signal, name))
    yield
    stage.policy.stop()
    stage.policy.start()


@contextmanager
def two_policies(stage: Stage) -> Iterator[None]:
    """A second policy node commands the same robot."""
    second = PolicyProcess(stage.policy.folder, "second")
    second.start()
    yield
    second.signal(signal.SIGINT)
    stage.until(lambda: not second.running, REPLY_S)
    second.stop()


@contextmanager
def hostile_parameters(stage: Stage) -> Iterator[None]:
    """Every parameter is set to what it should not be."""
    listed = call(stage, ListParameters, "policy/list_parameters", ListParameters.Request())
    for name in listed.result.names if listed is not None else ():
        for value in HOSTILE:
            _set(stage, name, value)
    yield
    for name, value in (
        ("use_sim_time", False),
        *((f"sources.{source.name}.topic", source.topic) for source in stage.wiring.sources),
    ):
        _set(stage, name, value)


@contextmanager
def garbage_model(stage: Stage, seed: int = 0) -> Iterator[None]:
    """The model's file turns into noise, and the node is told to take it."""
    good = stage.policy.model.read_bytes()
    stage.policy.model.write_bytes(random.Random(seed).randbytes(len(good)))
    _set(stage, "model", str(stage.policy.model))
    yield
    stage.policy.model.write_bytes(good)
    _set(stage, "model", str(stage.policy.model))


def _set(stage: Stage, name: str, value: Any) -> None:
    parameter = Parameter(name, value=value).to_parameter_msg()
    request = SetParameters.Request(parameters=[parameter])
    call(stage, SetParameters, "policy/set_parameters", request)


@contextmanager
def disk_full(stage: Stage) -> Iterator[None]:
    """The node can write to no file any more, as on a full disk, and is given much to log."""
    _, hard = resource.prlimit(stage.policy.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(stage.policy.pid, resource.RLIMIT_FSIZE, (0, hard))
    for _ in range(20):
        call(stage, Trigger, "policy/estop", Trigger.Request())
        call(stage, Trigger, "policy/reset_estop", Trigger.Request())
    yield
    resource.prlimit(stage.policy.pid, resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def inactive(stage: Stage) -> Iterator[None]:
    """The node is deactivated, and activated again at the end."""
    _client(stage, ChangeState, "policy/change_state")
    stage.broken_s = time.monotonic()
    _change(stage, Transition.TRANSITION_DEACTIVATE)
    yield
    activate(stage)


@contextmanager
def other_model(stage: Stage, name: str) -> Iterator[None]:
    """Another model that ships takes over while the Ant walks, and goes on walking it."""
    _set(stage, "model", str(share_path(f"models/{name}.safetensors")))
    yield
    _set(stage, "model", str(stage.policy.model))


@contextmanager
def rewired(stage: Stage, source: str) -> Iterator[None]:
    """A source moves to another topic, and the node is told; at the end it moves back."""
    with moved(stage, source) as (topic, other):
        _set(stage, f"sources.{source}.topic", other)
        yield
        _set(stage, f"sources.{source}.topic", topic)


@contextmanager
def stalled(stage: Stage, silent_after_s: float, for_s: float) -> Iterator[None]:
    """The process stands still for `for_s`; the sources fall silent meanwhile, and stay so.

    What counts is what it does when it runs again, with nothing but old messages waiting.
    """
    stage.policy.signal(signal.SIGSTOP)
    stage.play(silent_after_s)
    stage.deliver = lambda topic, message: None
    stage.play(for_s - silent_after_s)
    stage.broken_s = time.monotonic()
    stage.policy.signal(signal.SIGCONT)
    yield
    stage.deliver = stage.publish


@contextmanager
def interrupted_start(
    stage: Stage, from_s: float, to_s: float, ends_s: float = 2.0
) -> Iterator[None]:
    """The node, as users start it, gets SIGINT while it starts; it must end without a traceback."""
    stage.policy.stop()
    since = stage.policy.log_bytes
    stage.policy.start(real_executable())
    after_s = stage.random.uniform(from_s, to_s)
    stage.play(after_s)
    stage.broken_s = time.monotonic()
    stage.policy.signal(signal.SIGINT)
    where = f"interrupted {after_s:.2f} s after its start"
    if not stage.until(lambda: not stage.policy.running, ends_s):
        stage.complaints.append(f"{where}, it runs on for more than {ends_s:g} s")
    if "Traceback" in (log := stage.policy.logged(since)):
        stage.complaints.append(f"{where}, it logs a traceback: {log.splitlines()[-1]}")
    yield
    stage.policy.stop()
    stage.policy.start()


@contextmanager
def large_model(stage: Stage, mb: int) -> Iterator[None]:
    """The node is told to take a file that says it is a model of that size, all zeros."""
    path = stage.policy.folder / "large.safetensors"
    size = mb * 10**6
    array = {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": _metadata(stage.policy.model), "w": array}).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    stage.begin()
    _set(stage, "model", str(path))
    yield
    path.unlink()


def _metadata(model: Path) -> Any:
    """What a model file says beside its arrays."""
    content = model.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]


@contextmanager
def fifo_wiring(stage: Stage) -> Iterator[None]:
    """The wiring's file has become a FIFO that nobody writes, and the node is to read it again."""
    path = stage.policy.wiring
    content = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    answer = call(stage, Trigger, "policy/reload_wiring", Trigger.Request())
    if answer is None or answer.success:
        told = f"no answer within {REPLY_S:g} s" if answer is None else "accepted"
        stage.complaints.append(f"a wiring that is a FIFO: {told}, not refused")
    yield
    with suppress(OSError):  # who waits for a writer waits no longer
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    path.unlink()
    path.write_bytes(content)


def activate(stage: Stage) -> None:
    """Activate the node, as an operator does after a tick that failed."""
    _change(stage, Transition.TRANSITION_ACTIVATE)


def reset(stage: Stage) -> None:
    """Begin an episode of the policy, as a simulator does when it puts the robot back."""
    call(stage, Trigger, "policy/reset_state", Trigger.Request())


def _change(stage: Stage, transition: int) -> None:
    request = ChangeState.Request(transition=Transition(id=transition))
    call(stage, ChangeState, "policy/change_state", request)


def _client(stage: Stage, type_: Any, service: str) -> Any:
    """A client that the service knows."""
    client = stage.clients.get(service)
    if client is None:
        client = stage.clients[service] = stage.node.create_client(type_, service)
        stage.play(DISCOVERY_S)
    stage.until(client.service_is_ready, REPLY_S)
    return client


def call(stage: Stage, type_: Any, service: str, request: Any, *, wait: bool = True) -> Any:
    """Call a service while the robot goes on; None without a reply in time.

    Without waiting for it, the call is what breaks.
    """
    client = _client(stage, type_, service)
    if not wait:
        stage.broken_s = time.monotonic()
    future = client.call_async(request)
    if not wait:
        return None
    stage.until(future.done, REPLY_S)
    return future.result() if future.done() else None
