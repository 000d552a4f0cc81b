"""The SROS2 policies allow what each node uses, and nothing that it does not.

Where the middleware has DDS security, and `sros2` makes the keys, the policies are put to use.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import rclpy
from rcl_interfaces.srv import GetParameters, ListParameters, SetParametersAtomically
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState

from an_control.ros.operator import Operator
from an_control.system.share import find_share_path
from an_control.view import graph, schema
from an_control.view.clients import ServiceCalls
from an_control.view.command_handlers import CommandHandlers
from an_control.view.graph import RobotGraph
from an_control.view.listener import Listener, TopicSubscription

EXECUTABLES = {
    "policy": "an_control.ros.node",
    "simulator": "an_control_sim.bridge.simulator_node",
    "scrambler": "an_control_sim.scrambler.scrambler",
}
LIMIT_S = 120.0

OFTEN = {"/clock", "/parameter_events", "/rosout", "/ant/policy/transition_event"}
"""What rclpy uses or not, by how it is set up, or without telling."""


def allowed(name: str, kind: str, right: str) -> set[str]:
    (profile,) = ElementTree.parse(find_share_path(f"config/sros2/{name}.xml")).iter("profile")
    assert profile.attrib == {"ns": "/ant", "node": name}
    names = [
        entry.text or ""
        for group in profile.iter(f"{kind}s")
        if group.get(right) == "ALLOW"
        for entry in group.iter(kind)
    ]
    assert len(names) == len(set(names))
    return {one if one.startswith("/") else f"/ant/{one}" for one in names}


def assert_allows(node: Node, clients: set[str] = frozenset()) -> None:
    name = node.get_name()
    used = {one.topic_name for one in node.subscriptions} | OFTEN
    assert used == allowed(name, "topic", "subscribe") | OFTEN
    used = {one.topic_name for one in node.publishers} | OFTEN
    assert used == allowed(name, "topic", "publish") | OFTEN
    assert {one.service_name for one in node.services} == allowed(name, "service", "reply")
    assert {one.srv_name for one in node.clients} == clients == allowed(name, "service", "request")


def test_the_policy_node_may_do_what_it_does_and_no_more(stand):
    stand.wiring.write_bytes(find_share_path("config/ant.yaml").read_bytes())
    node = stand.start(
        activate=False,
        options={"namespace": "/ant"},
        model=str(find_share_path("models/ant.safetensors")),
    )
    assert node.trigger_configure().to_label() == "transition_success"
    assert_allows(node)


def test_the_simulator_may_do_what_it_does_and_no_more(stand):
    pytest.importorskip("pybullet")
    from an_control.disturbance import DisturbanceSettings
    from an_control.wiring import load_wiring
    from an_control_sim.bridge.bridge import Bridge
    from an_control_sim.bridge.robot import SimulatedRobot
    from an_control_sim.bridge.simulation_file import load_simulation
    from an_control_sim.scrambler.scrambler import Scrambler

    node = Node("simulator", namespace="/ant", context=stand.context)
    robot = SimulatedRobot(load_simulation(find_share_path("config/ant_sim.yaml")))
    wiring = load_wiring(find_share_path("config/ant.yaml"))
    bridge = Bridge(
        node, robot, tap=Scrambler(node, wiring, DisturbanceSettings(), 0), camera_hz=1.0
    )
    asked = ("reset_state", "estop", "reset_estop")
    assert_allows(node, {f"/ant/policy/{service}" for service in asked})
    bridge.close()
    node.destroy_node()


def test_the_scrambler_may_do_what_it_does_and_no_more(stand):
    pytest.importorskip("pybullet")
    from an_control_sim.scrambler.scrambler import ScramblerNode

    values = {"wiring": str(find_share_path("config/ant.yaml")), "shuffle": "reset"}
    overrides = [Parameter(name, value=value) for name, value in values.items()]
    node = ScramblerNode(namespace="/ant", context=stand.context, parameter_overrides=overrides)
    assert_allows(node)
    node.destroy_node()


def security(keystore: Path | None) -> dict[str, str]:
    """The environment of a process with these keys, or without security."""
    if keystore is None:
        return {"ROS_SECURITY_ENABLE": "false"}
    return {
        "ROS_SECURITY_ENABLE": "true",
        "ROS_SECURITY_STRATEGY": "Enforce",
        "ROS_SECURITY_KEYSTORE": str(keystore),
    }


async def list_calls_of_page(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The services that the page of `view` calls, with and without a scrambler of its own."""
    called: set[str] = set()

    async def record_call(type_: Any, service: str, request: Any) -> Any:
        called.add(service)
        response = type_.Response()
        if type_ is ListParameters:
            response.result.names = ["channels.a.field"]
        elif type_ is SetParametersAtomically:
            response.result.successful = True
        elif type_ is not GetParameters:
            response.success = True
        return response

    calls = ServiceCalls.__new__(ServiceCalls)
    monkeypatch.setattr(calls, "_call_service", record_call, raising=False)
    for scrambler in "/ant/scrambler", "/ant/simulator":
        handlers = CommandHandlers(calls, Listener.__new__(Listener))
        graph = RobotGraph("/ant/policy", scrambler, "/ant/simulator")
        handlers.policy = graph.policy
        assert await handlers.try_read_robot_parameters(graph, node_is_new=True)
        for command in (
            schema.EStopCommand(0),
            schema.ResetEStopCommand(0),
            schema.RestartCommand(0),
            schema.CorrectCommand(0, on=True),
            schema.CorrectCommand(0, on=False),
            schema.SetCommand(0, "jitter", 0.1),
        ):
            assert (await handlers.execute_browser_command(command)).ok
        await handlers._set_simulator_paused(True)
        await handlers._set_signal_order({"slot": "signal"})
        await handlers._rewire_policy_node({"channels.a.field": "b"})
    return called


def test_an_operator_may_do_what_the_commands_and_the_page_do_and_no_more(stand, monkeypatch):
    node = Node("operator", namespace="/ant", context=stand.context, enable_rosout=False)
    policy, one = "/ant/policy", Operator(node, 0.01)
    for call in (  # nobody is there, but each client is made
        lambda: one.latch_estop(policy),
        *(
            lambda name=name: one.call_trigger_service(policy, name)
            for name in ("reset_estop", "reset_state", "reload_wiring")
        ),
        lambda: one.change_state(policy, "active"),
        lambda: one._request_transition(policy, 1),
        lambda: one.set_shadow(policy, True),
        lambda: next(one.iterate_statuses(policy)),
        lambda: one.rewire(policy, {}),
    ):
        with suppress(TimeoutError):
            call()
    requested = {client.srv_name for client in node.clients}
    requested |= asyncio.run(list_calls_of_page(monkeypatch))
    assert requested == allowed("operator", "service", "request")
    published = {publisher.topic_name for publisher in node.publishers}
    assert published | OFTEN == allowed("operator", "topic", "publish") | OFTEN
    watched = [TopicSubscription(f"{policy}/{name}", None) for name in (*graph._INSIDE, "attended")]
    read = {topic.name for topic in (*watched, *graph.FIXED.values())}
    read |= {f"/ant/{names[0]}" for _, _, names in graph.SENSORS.values()}
    read |= {f"/ant/{name}" for name in ("simulator/progress", "simulator/order")}
    read |= {"/ant/scrambler/order", *(one.topic_name for one in node.subscriptions)}
    assert read | OFTEN == allowed("operator", "topic", "subscribe") | OFTEN
    node.destroy_node()


@contextmanager
def node_of(keystore: Path | None, name: str) -> Iterator[Node]:
    """A node /ant/NAME in the enclave of that name."""
    context = Context()
    with pytest.MonkeyPatch.context() as environment:
        for variable, value in security(keystore).items():
            environment.setenv(variable, value)
        args = ["--ros-args", "--enclave", f"/ant/{name}"]
        off = SignalHandlerOptions.NO
        rclpy.init(args=args, context=context, signal_handler_options=off)
    try:
        node = Node(name, namespace="/ant", context=context)
        yield node
        node.destroy_node()
    finally:
        rclpy.shutdown(context=context)


@pytest.fixture(scope="module")
def keystores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two with the same enclaves and permissions, each of an authority of its own."""
    folder = tmp_path_factory.mktemp("keys")
    (folder / "empty/enclaves/ant/policy").mkdir(parents=True)
    with pytest.raises(RuntimeError) as refused, node_of(folder / "empty", "policy"):
        pass
    if "SECURITY=ON" in str(refused.value):
        pytest.skip(str(refused.value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sros2 is older than cryptography's newest advice
        maker = pytest.importorskip("sros2.keystore", exc_type=ImportError)
        for keystore in (folder / "ours", folder / "theirs"):
            maker.create_keystore(keystore)
            for name in (*EXECUTABLES, "operator"):
                maker.create_enclave(keystore, f"/ant/{name}")
                policy = find_share_path(f"config/sros2/{name}.xml")
                maker.create_permission(keystore, f"/ant/{name}", policy)
    return folder / "ours", folder / "theirs"


def started(keystore: Path | None, name: str, **parameters: object) -> subprocess.Popen[str]:
    given = [part for key, value in parameters.items() for part in ("-p", f"{key}:={value}")]
    command = [sys.executable, "-m", EXECUTABLES[name], "--ros-args", "-r", "__ns:=/ant"]
    return subprocess.Popen(
        [*command, "--enclave", f"/ant/{name}", *given],
        env=os.environ | security(keystore),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def walk(keystore: Path | None) -> list[str]:
    """The figures of an episode of the Ant in lockstep, the node and the simulator in processes."""
    files = {"wiring": "config/ant.yaml", "model": "models/ant.safetensors"}
    settings = {key: find_share_path(file) for key, file in files.items()}
    lockstep = {"mode": "lockstep", "engine": "numpy", "autostart": True}
    node = started(keystore, "policy", **settings, **lockstep)
    with node:
        try:
            simulation = {"simulation": find_share_path("config/ant_sim.yaml"), "episodes": 1}
            simulator = started(keystore, "simulator", **simulation, seed=3)
            out, errors = simulator.communicate(timeout=LIMIT_S)
        finally:
            node.kill()
    assert simulator.returncode == 0, errors
    return re.findall(r"return +\S+", out)


def test_with_the_right_keys_the_ant_walks_as_it_does_without_security(keystores):
    pytest.importorskip("pybullet")
    ours, _ = keystores
    secured = walk(ours)
    assert secured and secured == walk(None)


@pytest.mark.parametrize("keys", ["of another authority", "none"])
def test_a_node_with_wrong_keys_or_none_hears_and_says_nothing(keystores, keys):
    ours, theirs = keystores
    camps = {"ours": ours, "theirs": None if keys == "none" else theirs}
    heard: dict[str, list[str]] = {camp: [] for camp in camps}
    with ExitStack() as stack:
        speakers, executors = {}, []
        for camp, keystore in camps.items():
            speaker = stack.enter_context(node_of(keystore, "simulator"))
            speakers[camp] = speaker.create_publisher(JointState, "joint_states", 10)
            listener = stack.enter_context(node_of(keystore, "policy"))
            listener.create_subscription(
                JointState,
                "joint_states",
                lambda message, camp=camp: heard[camp].append(message.header.frame_id),
                10,
            )
            executors.append(SingleThreadedExecutor(context=listener.context))
            executors[-1].add_node(listener)
        end_s = time.monotonic() + LIMIT_S
        # Each camp hears itself, and so has had the time to find whom it can.
        while min(len(one) for one in heard.values()) < 50:
            assert time.monotonic() < end_s, f"waited {LIMIT_S:g} s in vain: {heard}"
            for camp, publisher in speakers.items():
                message = JointState()
                message.header.frame_id = camp
                publisher.publish(message)
            for executor in executors:
                executor.spin_once(timeout_sec=0.02)
        for executor in executors:
            executor.shutdown()
    assert {camp: set(names) for camp, names in heard.items()} == {one: {one} for one in camps}


def test_an_enclave_cannot_publish_what_its_policy_does_not_allow(keystores):
    ours, _ = keystores
    with node_of(ours, "scrambler") as node:
        node.create_publisher(JointState, "scrambled", 10)
        with pytest.raises(RuntimeError):
            node.create_publisher(JointState, "joint_commands", 10)


@pytest.mark.parametrize("name", EXECUTABLES)
def test_an_executable_without_keys_says_why_it_cannot_start_and_ends_with_2(tmp_path, name):
    pytest.importorskip("gymnasium")
    (tmp_path / "enclaves/ant" / name).mkdir(parents=True)
    with started(tmp_path, name) as process:
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2, errors
    assert f"{name.replace('policy', 'policy_node')}: cannot start: " in errors
    assert "Traceback" not in errors
