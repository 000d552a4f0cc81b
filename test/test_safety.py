"""The gate: whatever comes in, what goes out is finite, within limits and not too fast."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from geometry_msgs.msg import Vector3Stamped
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sensor_msgs.msg import JointState
from stand import JOINTS, WIRING, tiny_model

from an_control.control.bring_up import BringUp, BringUpError
from an_control.control.command_safety import SafeCommand, SafetyGate, get_command_limits
from an_control.control.controller import Controller
from an_control.wiring import (
    ActuatorConfig,
    CommandConfig,
    MessageConfig,
    compute_field_steps,
    compute_sendable_limits,
    load_wiring,
    make_command_messages,
)
from an_control.wiring.command import BringUpConfig, MeasuredConfig

STEP_S = 0.01
BRING_UP = f"""{WIRING.partition("command:")[0]}command:
  topic: commands
  type: sensor_msgs/msg/JointState
  field: position
  measured: {{source: joints, field: "position[*]"}}
  bring_up: {{max_rate: 1.0, tolerance: 0.05, timeout_s: 20.0}}
  actuators:
    left: {{scale: 10.0, limits: [-8, 8], safe: 0.0, start: 0.5}}
    right: {{scale: 10.0, limits: [-8, 8], safe: 0.0, start: -0.5}}
"""
FINITE = st.floats(-1e6, 1e6, allow_subnormal=False)
ANYTHING = st.floats(width=64)


def command(*actuators: ActuatorConfig) -> CommandConfig:
    message = MessageConfig("commands", "sensor_msgs/msg/JointState", "effort", actuators)
    return CommandConfig((message,))


def actuator(
    low: float = -8.0, high: float = 8.0, max_rate: float = 0.0, safe: float = 0.0
) -> ActuatorConfig:
    return ActuatorConfig("joint", 1.0, 0.0, (low, high), max_rate, safe)


@st.composite
def actuators(draw: st.DrawFn) -> ActuatorConfig:
    low, safe, high = sorted(draw(st.tuples(FINITE, FINITE, FINITE)))
    max_rate = draw(st.sampled_from([0.0, 1e-3, 1.0, 1e3]))
    return actuator(low, high, max_rate, safe)


@st.composite
def gates_and_commands(draw: st.DrawFn) -> tuple[CommandConfig, list[np.ndarray]]:
    config = command(*draw(st.lists(actuators(), min_size=1, max_size=5)))
    shape = len(config.actuators)
    return config, draw(st.lists(arrays(np.float64, shape, elements=ANYTHING), max_size=12))


@given(gates_and_commands())
def test_whatever_comes_in_goes_out_finite_within_limits_and_not_too_fast(case):
    config, sequence = case
    gate = SafetyGate(config, STEP_S)
    last = config.make_safe_command()
    for wanted in sequence:
        kept = wanted.copy()
        out = gate(wanted)
        np.testing.assert_array_equal(wanted, kept)
        assert out.shape == wanted.shape and np.isfinite(out).all()
        for value, before, one in zip(out, last, config.actuators, strict=True):
            assert one.limits[0] <= value <= one.limits[1]
            if one.max_rate and np.isfinite(wanted).all():
                allowed = one.max_rate * STEP_S
                assert abs(value - before) <= allowed * (1 + 1e-9) + 1e-9 * abs(before)
        last = out


@given(arrays(np.float64, 2, elements=st.floats(-8, 8)))
def test_a_command_within_the_limits_goes_out_unchanged_to_the_last_bit(wanted):
    gate = SafetyGate(command(actuator(), actuator()), STEP_S)
    np.testing.assert_array_equal(gate(wanted), wanted)
    assert gate.counts == type(gate.counts)()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_makes_the_whole_command_safe(bad):
    gate = SafetyGate(command(actuator(safe=1.0), actuator(safe=-2.0)), STEP_S)
    np.testing.assert_array_equal(gate(np.array([5.0, bad])), [1.0, -2.0])
    assert gate.counts.not_finite == 1


def test_after_the_safe_command_changes_count_from_it():
    gate = SafetyGate(command(actuator(max_rate=100.0, safe=2.0)), STEP_S)
    np.testing.assert_array_equal(gate(np.array([8.0])), [3.0])
    np.testing.assert_array_equal(gate(np.array([8.0])), [4.0])
    np.testing.assert_array_equal(gate.restart_ramp_and_get_safe_command(), [2.0])
    np.testing.assert_array_equal(gate(np.array([8.0])), [3.0])
    assert gate.counts.rate_limited == 3
    gate(np.array([8.0]))
    gate.restart_ramp_from_safe_command()
    np.testing.assert_array_equal(gate(np.array([8.0])), [3.0])


def test_what_it_changed_is_counted_by_reason():
    gate = SafetyGate(command(actuator(max_rate=100.0), actuator()), STEP_S)
    gate(np.array([0.5, 9.0]))
    gate(np.array([5.0, 0.0]))
    gate(np.array([np.nan, 0.0]))
    gate(np.array([0.0, 0.0]))
    counts = gate.counts
    assert (counts.not_finite, counts.limited, counts.rate_limited) == (1, 1, 1)


def test_what_it_gave_can_be_changed_without_changing_the_gate():
    gate = SafetyGate(command(actuator(max_rate=100.0, safe=1.0)), STEP_S)
    gate(np.array([1.0]))[:] = 99.0
    gate.restart_ramp_and_get_safe_command()[:] = 99.0
    np.testing.assert_array_equal(gate(np.array([8.0])), [2.0])


def test_changes_count_from_what_really_went_out():
    gate = SafetyGate(command(actuator(max_rate=100.0)), STEP_S)
    gate(np.array([1.0]))
    gate.last.record(np.array([-3.0]), 0)
    np.testing.assert_array_equal(gate(np.array([8.0])), [-2.0])


def held(*starts: float) -> CommandConfig:
    """Position commands of two actuators: one holds, one has a fixed safe value."""
    first, second = starts or (None, None)
    message = MessageConfig(
        "commands", "sensor_msgs/msg/JointState", "position",
        (
            ActuatorConfig("a", 1.0, 0.0, (-2.0, 2.0), 0.0, "hold", first),
            ActuatorConfig("b", 1.0, 0.0, (-2.0, 2.0), 0.0, -0.5, second),
        ),
        MeasuredConfig("joints", "position[*]"),
        BringUpConfig(max_rate=1.0, tolerance=0.05, timeout_s=2.0) if starts else None,
    )  # fmt: skip
    return CommandConfig((message,))


def test_a_safe_command_holds_where_the_robot_was_when_it_began():
    safe = SafeCommand(held())
    assert not safe.has_all_needed_positions and np.isnan(safe()[0])
    safe.record_measured_positions(np.array([0.3, 9.0]))
    assert safe.has_all_needed_positions
    np.testing.assert_array_equal(safe(), [0.3, -0.5])
    safe.record_measured_positions(np.array([0.9, 9.0]))
    np.testing.assert_array_equal(safe(), [0.3, -0.5])
    safe.forget_held_positions()
    safe.record_measured_positions(np.array([7.0, 9.0]))
    np.testing.assert_array_equal(safe(), [2.0, -0.5])


def test_after_commands_of_the_policy_the_gate_holds_anew():
    gate = SafetyGate(held(), STEP_S)
    gate.safe_command.record_measured_positions(np.array([0.3, 0.0]))
    np.testing.assert_array_equal(gate.restart_ramp_and_get_safe_command(), [0.3, -0.5])
    gate(np.array([1.0, 1.0]))
    gate.safe_command.record_measured_positions(np.array([0.8, 0.0]))
    np.testing.assert_array_equal(gate.restart_ramp_and_get_safe_command(), [0.8, -0.5])


def test_a_safe_command_within_a_ramp_holds_where_the_robot_is_and_not_where_the_ramp_began():
    gate = SafetyGate(held(), STEP_S, ramp_s=10 * STEP_S)
    gate.safe_command.record_measured_positions(np.array([0.0, 0.0]))
    gate.restart_ramp_and_get_safe_command()
    for share in np.arange(1, 10) / 10:
        sent = gate(np.array([1.0, 1.0]))
        np.testing.assert_allclose(sent, [share, 1.5 * share - 0.5])
        gate.safe_command.record_measured_positions(sent)
    np.testing.assert_allclose(gate.restart_ramp_and_get_safe_command(), [0.9, -0.5])


@given(arrays(np.float64, 2, elements=st.floats(-1, 1)))
def test_bring_up_moves_no_faster_than_its_rate_and_ends_at_the_start_pose(measured):
    up = BringUp(held(0.5, -0.5), STEP_S)
    up.start_moving_to_start_pose()
    ticks = 0
    while not up.done:
        target = up(measured)
        assert np.abs(target - measured).max() <= STEP_S * 1.0 + 1e-12
        measured, ticks = target, ticks + 1
    assert np.abs(measured - [0.5, -0.5]).max() <= 0.05 + STEP_S * 1.0 + 1e-12


def test_a_bring_up_that_is_interrupted_goes_on_from_where_the_robot_is_by_then():
    up = BringUp(held(0.5, -0.5), STEP_S)
    up.start_moving_to_start_pose()
    up(np.array([2.0, 2.0]))
    up.pause()
    np.testing.assert_allclose(up(np.array([-1.0, 0.0])), [-0.99, -0.01])


def test_a_bring_up_that_gets_nowhere_names_the_actuator_and_how_far_it_is():
    up = BringUp(held(0.5, -0.5), STEP_S)
    up.start_moving_to_start_pose()
    with pytest.raises(BringUpError, match=r"a is 1\.5 from its start pose after 2 s"):
        for _ in range(300):
            up(np.array([2.0, -0.5]))


def test_a_bring_up_that_is_cancelled_is_over_and_begins_anew():
    up = BringUp(held(0.5, -0.5), STEP_S)
    up.start_moving_to_start_pose()
    up.cancel()
    assert up.done
    up.start_moving_to_start_pose()
    assert not up.done


def test_another_ramp_counts_from_the_next_safe_command_and_leaves_the_one_that_runs():
    gate, wanted = SafetyGate(command(actuator()), STEP_S, 0.0), np.array([1.0])
    gate(wanted)
    gate.set_ramp_duration_s(10 * STEP_S)
    assert gate.authority == 1.0
    np.testing.assert_allclose(gate(wanted), wanted)
    gate.restart_ramp_and_get_safe_command()
    np.testing.assert_allclose(gate(wanted), [0.1])
    gate.set_ramp_duration_s(0.0)
    np.testing.assert_allclose(gate(wanted), [0.2])
    gate.restart_ramp_and_get_safe_command()
    np.testing.assert_allclose(gate(wanted), wanted)


def test_without_bring_up_there_is_nothing_to_wait_for():
    up = BringUp(held(), STEP_S)
    up.start_moving_to_start_pose()
    assert up.done


def test_while_an_arm_is_brought_up_the_base_gets_its_safe_command():
    (arm,) = held(0.5, 0.5).messages
    base = MessageConfig(
        "cmd_vel", "geometry_msgs/msg/Twist", "linear.x",
        (ActuatorConfig("forward", 1.0, 0.0, (-1.0, 1.0), 0.0, 0.25),),
    )  # fmt: skip
    up = BringUp(CommandConfig((base, arm)), STEP_S)
    up.start_moving_to_start_pose()
    assert not up.done
    measured = np.array([np.nan, 0.0, 0.0])
    np.testing.assert_allclose(up(measured), [0.25, STEP_S, STEP_S])
    up(np.array([np.nan, 0.5, 0.5]))
    assert up.done
    with pytest.raises(BringUpError, match="bring-up: b is"):
        for _ in range(10_000):
            up(np.array([np.nan, 0.5, 0.0]))


RATE = 2.0
FOREIGN = st.one_of(
    st.floats(-1e3, 1e3), st.sampled_from([20.0, -20.0, 1e308, np.nan, np.inf, -np.inf])
)


@st.composite
def gates(draw: st.DrawFn) -> tuple[CommandConfig, float]:
    """A command of one to three actuators, and the seconds of a ramp."""
    config = command(*draw(st.lists(actuators(), min_size=1, max_size=3)))
    return config, draw(st.sampled_from([0.0, STEP_S, 7 * STEP_S]))


@st.composite
def histories(draw: st.DrawFn):
    """A gate, and what happens to it: (event, values (A,), seconds since the event before)."""
    config, ramp_s = draw(gates())
    count = len(config.actuators)
    wanted = st.one_of(
        arrays(np.float64, count, elements=ANYTHING), arrays(np.float64, count, elements=FOREIGN)
    )
    events = st.sampled_from(
        ["command", "command", "command", "foreign", "safe", "start", "ramp", "unsent", "forget"]
    )
    passed_s = st.sampled_from([0.0, 0.3 * STEP_S, STEP_S, 1.2 * STEP_S, 30.0, -5.0])
    return config, ramp_s, draw(st.lists(st.tuples(events, wanted, passed_s), max_size=15))


def check_limits_and_rates(history) -> None:
    """Play a history, of foreign commands too, and check every command that the gate gives."""
    config, ramp_s, events = history
    gate, now_ns = SafetyGate(config, STEP_S, ramp_s), 10**12
    low, high = get_command_limits(config)
    last, last_ns, known = config.make_safe_command(), None, False
    for event, values, passed_s in events:
        now_ns += round(passed_s * 1e9)
        if event == "foreign":
            gate.last.record(values, now_ns)
            if np.isfinite(values).all():
                last, last_ns, known = values, now_ns, True
        elif event == "forget":
            gate.last.forget_command()
            known, last = False, gate.safe_command()
            gate.restart_ramp_from_safe_command()
        elif event in ("start", "safe"):
            sent = gate.restart_ramp_and_get_safe_command()
            if event == "start":
                gate.forget_positions_and_restart_ramp()
            np.testing.assert_array_equal(sent, config.make_safe_command())
            gate.last.record(sent, now_ns)
            last, last_ns, known = sent, now_ns, True
        elif event == "ramp":
            gate.set_ramp_duration_s(ramp_s * 2)
        else:
            with np.errstate(over="ignore"):
                out = gate(values, now_ns, ramped=bool(passed_s))
            assert np.isfinite(out).all() and (low <= out).all() and (out <= high).all()
            if np.isfinite(values).all():
                passed = STEP_S
                if known:
                    passed = min(max((now_ns - last_ns) / 1e9, 0.0), STEP_S)
                within = np.clip(last, low, high)
                for i, one in enumerate(config.actuators):
                    if one.max_rate:
                        change = abs(out[i] - within[i])
                        assert change <= one.max_rate * passed * (1 + 1e-9) + 1e-9 * abs(within[i])
            if event == "command":
                gate.last.record(out, now_ns)
                last, last_ns, known = out, now_ns, True
            elif not known:
                last = out


@given(histories())
def test_whatever_anybody_sent_before_commands_stay_within_limits_and_within_the_rate(history):
    check_limits_and_rates(history)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=10_000)
@given(histories())
def test_ten_thousand_histories_leave_commands_within_limits_and_within_the_rate(history):
    check_limits_and_rates(history)


def test_after_a_command_outside_the_limits_ours_start_at_the_border_and_keep_the_rate():
    gate = SafetyGate(command(actuator(-1.0, 1.0, max_rate=2.0)), STEP_S)
    gate.last.record(np.array([20.0]), 0)
    step_ns = round(STEP_S * 1e9)
    sent = []
    for tick in range(1, 120):
        (value,) = gate(np.array([-1.0]), tick * step_ns)
        gate.last.record(np.array([value]), tick * step_ns)
        sent.append(value)
    np.testing.assert_allclose(sent[:3], [0.98, 0.96, 0.94])
    assert min(sent) == -1.0 and max(sent) <= 1.0


@given(st.lists(st.sampled_from([0.2, 0.5, 0.9, 1.0, 1.4, 3.0]), min_size=1, max_size=200))
def test_the_greatest_rate_counts_seconds_and_not_ticks(gaps):
    gate, now_ns, values, times_s = SafetyGate(command(actuator(max_rate=RATE)), STEP_S), 0, [], []
    gate.last.record(gate.restart_ramp_and_get_safe_command(), now_ns)
    for gap in gaps:
        now_ns += round(gap * STEP_S * 1e9)
        sent = gate(np.array([8.0]), now_ns)
        gate.last.record(sent, now_ns)
        values.append(sent[0])
        times_s.append(now_ns / 1e9)
    rates = np.diff(values, prepend=0.0) / np.diff(times_s, prepend=0.0)
    assert rates.max() <= RATE * (1 + 1e-9)
    assert values[-1] <= RATE * STEP_S * len(gaps) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("type_", "rate", "after_s"),
    [("Int16", 30.0, 30), ("Int16", 20.0, 20), ("Int16", 74.0, 74), ("Bool", 5.0, 1)],
)
def test_a_whole_number_changes_as_fast_as_the_rate_says(tmp_path, type_, rate, after_s):
    text = (
        WIRING.partition("command:")[0]
        + f"""command:
  topic: gear
  type: std_msgs/msg/{type_}
  field: data
  actuators: {{gear: {{scale: 100.0, limits: {[0, 1] if type_ == "Bool" else [-999, 999]},
    max_rate: {rate}, safe: 0}}}}
"""
    )
    (tmp_path / "wiring.yaml").write_text(text.replace("rate_hz: 100.0", "rate_hz: 50"))
    wiring = load_wiring(tmp_path / "wiring.yaml")
    messages = make_command_messages(wiring.command, wiring.file)
    limits, steps = (
        compute_sendable_limits(wiring.command, messages),
        compute_field_steps(messages),
    )
    gate = SafetyGate(wiring.command, 0.02, 0.0, limits, steps)
    sent = []
    for tick in range(101):
        messages[0].fill(gate(np.array([900.0])), 0)
        sent.append(messages[0].read_values(messages[0].message))
        gate.last.record(sent[-1], round(tick * 2e7))
    assert sent[50][0] == pytest.approx(after_s, abs=1.0)
    assert max(np.diff(np.array(sent)[:, 0])) <= max(1.0, np.ceil(rate * 0.02))
    gate.last.record(np.array([500.0]), 2 * 10**9)  # another node's, which is no rounding
    if type_ == "Int16":
        assert gate(np.array([900.0]))[0] == pytest.approx(500.0 + 0.02 * rate)


def test_a_ramp_counts_seconds_and_not_ticks():
    gate, half_ns = (
        SafetyGate(command(actuator()), STEP_S, ramp_s=4 * STEP_S),
        round(STEP_S * 1e9 / 2),
    )
    gate.last.record(gate.restart_ramp_and_get_safe_command(), 0)
    sent = []
    for tick in range(1, 10):
        sent.append(gate(np.array([8.0]), tick * half_ns)[0])
        gate.last.record(np.array(sent[-1:]), tick * half_ns)
    np.testing.assert_allclose(sent, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 8.0])


def test_a_ramp_after_a_bring_up_is_whole_and_starts_where_the_bring_up_has_ended():
    gate = SafetyGate(command(actuator(safe=0.0)), STEP_S, ramp_s=4 * STEP_S)
    for _ in range(100):  # longer than the ramp
        gate(np.array([2.0]), ramped=False)
    sent = [gate(np.array([6.0]))[0] for _ in range(5)]
    np.testing.assert_allclose(sent, [3.0, 4.0, 5.0, 6.0, 6.0])
    gate.restart_ramp_and_get_safe_command()
    np.testing.assert_allclose(gate(np.array([6.0])), [1.5])


@pytest.fixture
def brought_up(
    tmp_path: Path, request: pytest.FixtureRequest
) -> tuple[Controller, Callable[[np.ndarray], np.ndarray]]:
    """Return a controller in its bring-up, and a function that makes a tick at a position.

    An indirect parameter is the text that the actuators have in place of `safe: 0.0`.
    """
    text = BRING_UP.replace("safe: 0.0", getattr(request, "param", "safe: 0.0"))
    (tmp_path / "wiring.yaml").write_text(text)
    model = tiny_model(tmp_path / "model.safetensors")
    controller = Controller(str(tmp_path / "wiring.yaml"), str(model), "numpy", ramp_s=0.0)
    controller.start(bring_up=True)
    now_ns = 10**12

    def tick(position: np.ndarray) -> np.ndarray:
        nonlocal now_ns
        now_ns += 10_000_000
        joints = JointState(name=list(JOINTS), position=array("d", position))
        controller.table.store_message("joints", joints, now_ns, now_ns)
        controller.table.store_message("tilt", Vector3Stamped(), now_ns, now_ns)
        controller.decide(now_ns, None)
        sent = controller.compute_command(now_ns)
        controller.gate.last.record(sent, now_ns)
        return sent

    return controller, tick


def test_after_safe_commands_of_the_watchdog_a_bring_up_goes_on_from_where_the_robot_is(brought_up):
    controller, tick = brought_up
    position = np.array([2.5, -2.5])
    for _ in range(20):
        position = tick(position)
    np.testing.assert_allclose(position, [2.3, -2.3])
    for _ in range(200):
        position = controller.gate.safe_command()
        controller.gate.last.record(position, 10**12)
    np.testing.assert_allclose(tick(position), [0.01, -0.01])


@pytest.mark.parametrize(
    "brought_up", ["max_rate: 1.0, safe: 0.0", "max_rate: 1.0, safe: hold"], indirect=True
)
def test_with_a_greatest_rate_each_bring_up_starts_where_the_robot_is_by_then(brought_up):
    controller, tick = brought_up
    np.testing.assert_allclose(tick(np.array([2.5, -2.5])), [2.49, -2.49])
    np.testing.assert_allclose(tick(np.array([2.49, -2.49])), [2.48, -2.48])
    controller.gate.last.record(controller.stop_and_get_safe_command(), 10**12)
    controller.start(bring_up=True)  # after somebody has moved the robot by hand
    np.testing.assert_allclose(tick(np.array([-1.0, 1.0])), [-0.99, 0.99])


@pytest.mark.parametrize("brought_up", ["max_rate: 1.0, safe: hold"], indirect=True)
def test_activated_again_it_counts_from_where_the_robot_is_or_from_another_nodes_command(
    brought_up,
):
    controller, tick = brought_up
    controller.start(bring_up=False)
    tick(np.array([2.5, -2.5]))
    controller.gate.last.record(controller.stop_and_get_safe_command(), 10**12)
    controller.start(bring_up=False)
    assert np.abs(tick(np.array([-1.0, 1.0])) - [-1.0, 1.0]).max() <= 0.01 + 1e-9
    controller.gate.last.record(np.array([0.2, 0.3]), 10**12, is_own=False)
    controller.start(bring_up=False)
    assert np.abs(tick(np.array([-1.0, 1.0])) - [0.2, 0.3]).max() <= 0.01 + 1e-9


def test_a_safe_command_holds_no_position_that_is_too_old(tmp_path: Path):
    text = BRING_UP.replace("safe: 0.0", "safe: hold")
    (tmp_path / "wiring.yaml").write_text(text)
    model = tiny_model(tmp_path / "model.safetensors")
    controller = Controller(str(tmp_path / "wiring.yaml"), str(model), "numpy", ramp_s=0.0)
    now_ns = 10**12

    def tick(passed_s: float, position: float | None = None) -> np.ndarray:
        nonlocal now_ns
        now_ns += round(passed_s * 1e9)
        if position is not None:
            joints = JointState(name=list(JOINTS), position=array("d", [position] * 2))
            controller.table.store_message("joints", joints, now_ns, now_ns)
        controller.table.store_message("tilt", Vector3Stamped(), now_ns, now_ns)
        controller.decide(now_ns, None)
        return controller.compute_command(now_ns)

    controller.start(bring_up=True)
    controller.decide(now_ns, None)
    assert np.isnan(controller.compute_command(now_ns)).all()
    assert tick(0.01, 1.0) == pytest.approx([0.99, 0.99])
    # The joints fall silent in the bring-up, and no command is known: none can be safe.
    assert np.isnan(tick(5.0)).all()
    assert "too old" in controller.decision.safe_reason
    # With a command that is known the motors are where that has sent them.
    controller.gate.last.record(np.array([0.7, 0.6]), now_ns)
    assert tick(0.01).tolist() == [0.7, 0.6] and not controller.bring_up.done
    # New positions end that.
    assert tick(0.01, 0.4) == pytest.approx([0.41, 0.39])


def test_after_a_start_the_safe_command_holds_where_the_robot_is_by_then():
    gate = SafetyGate(held(), STEP_S)
    gate.safe_command.record_measured_positions(np.array([0.3, 0.0]))
    gate.restart_ramp_and_get_safe_command()
    gate.safe_command.record_measured_positions(np.array([0.9, 0.0]))
    gate.forget_positions_and_restart_ramp()
    assert not gate.safe_command.has_all_needed_positions  # that may have been long ago
    gate.safe_command.record_measured_positions(np.array([1.2, 0.0]))
    np.testing.assert_array_equal(gate.restart_ramp_and_get_safe_command(), [1.2, -0.5])
