"""The motion test without ROS: what it sends stays within limits, and what it finds is so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("rclpy")
pytest.importorskip("pybullet")

from an_control.commissioning.motion import report
from an_control.commissioning.motion.compare import MotionDiagnosis, diagnose_wiring_by_motion
from an_control.commissioning.motion.plan import MotionSettings, make_sine_sweep, plan_motion
from an_control.commissioning.motion.response import (
    find_response_delay,
    find_response_sign,
    fit_mass_spring_damper,
)
from an_control.commissioning.motion.run import MotionRecording, MotionRun
from an_control.control.command_safety import SafetyGate
from an_control.system.share import find_share_path
from an_control.wiring import (
    ActuatorConfig,
    CommandConfig,
    MessageConfig,
    WiringError,
    load_wiring,
)
from an_control_sim.bridge.direct_robot import play_and_time_test_motion

WIRING = Path(find_share_path("config/ant.yaml")).read_text(encoding="utf-8")
SIMULATION = Path(find_share_path("config/ant_sim.yaml")).read_text(encoding="utf-8")
HIP_1, ANKLE_3 = "    hip_1: {scale: 250.0", "    ankle_3: {scale: 250.0"


def exchange(text: str, one: str, other: str) -> str:
    return text.replace(one, "\0").replace(other, one).replace("\0", other)


def move(
    folder: Path, wiring: str = WIRING, simulation: str = SIMULATION, seed: int = 0
) -> tuple[MotionRecording, MotionDiagnosis, str]:
    """The recording of a hanging Ant, what it shows, and the corrected wiring."""
    files = folder / "wiring.yaml", folder / "sim.yaml"
    files[0].write_text(wiring)
    files[1].write_text(simulation.replace("step_s:", "options: {pose: hanging}\nstep_s:"))
    loaded = load_wiring(files[0])
    run = MotionRun(loaded, MotionSettings())
    assert play_and_time_test_motion(run, files[1], seed) <= 30.0
    assert not run.stopped
    recording = run.make_recording()
    diagnosis = diagnose_wiring_by_motion(recording, loaded.command)
    return recording, diagnosis, report.correct_wiring(wiring, loaded, diagnosis).text


def list_findings(diagnosis: MotionDiagnosis) -> list[tuple[str, bool]]:
    return [(one.what, one.certain) for one in diagnosis.findings]


@pytest.mark.parametrize("seed", [11, 12])
def test_all_sensors_of_a_hanging_ant_are_found_with_their_signs_and_nothing_is_wrong(
    tmp_path, seed
):
    recording, diagnosis, text = move(tmp_path, seed=seed)
    assert len(diagnosis.pairs) == 16
    for pair in diagnosis.pairs:
        assert recording.ids[pair.channel].startswith(f"{recording.actuators[pair.actuator]}.")
        assert pair.sign == 1 and pair.gain > 0.0
    assert not diagnosis.findings and not diagnosis.notes and text == WIRING
    assert np.abs(recording.commands).max() <= 0.1 * 250.0
    assert not recording.commands[-1].any()


def test_a_reversed_motor_is_found_and_its_line_is_corrected(tmp_path):
    wrong = WIRING.replace("ankle_2: {scale: 250.0", "ankle_2: {scale: -250.0")
    _, diagnosis, text = move(tmp_path, wrong)
    assert list_findings(diagnosis) == [("ankle_2", True)]
    assert "ankle_2: {scale: 250," in text


def test_a_motor_with_exchanged_poles_is_found_but_its_sensors_could_be_reversed_as_well(tmp_path):
    wrong = SIMULATION.replace("ankle_2: {scale: 250.0", "ankle_2: {scale: -250.0")
    _, diagnosis, text = move(tmp_path, simulation=wrong)
    assert list_findings(diagnosis) == [("ankle_2", False)]
    assert "or else reverse ankle_2.position and" in diagnosis.findings[0].correction
    assert text == WIRING, "what is not certain is not corrected"


def test_a_reversed_position_sensor_is_found_and_its_line_is_corrected(tmp_path):
    line = "'position[hip_3]', scale: 1.4323945"
    _, diagnosis, text = move(tmp_path, WIRING.replace(line, line.replace("1.4", "-1.4")))
    assert list_findings(diagnosis) == [("hip_3.position", True)]
    assert text == WIRING


def test_an_exchanged_pair_of_sensors_is_found_and_corrected(tmp_path):
    wrong = exchange(WIRING, "position[hip_1]", "position[hip_2]")
    _, diagnosis, text = move(tmp_path, wrong)
    assert sorted(list_findings(diagnosis)) == [("hip_1.position", True), ("hip_2.position", True)]
    assert text == WIRING


def test_motors_with_each_others_field_are_found_and_corrected(tmp_path):
    wrong = WIRING.replace(HIP_1, HIP_1.replace("{", "{field: 'effort[ankle_3]', "))
    wrong = wrong.replace(ANKLE_3, ANKLE_3.replace("{", "{field: 'effort[hip_1]', "))
    _, diagnosis, text = move(tmp_path, wrong)
    assert sorted(list_findings(diagnosis)) == [("ankle_3", True), ("hip_1", True)]
    assert "hip_1: {field: 'effort[hip_1]'" in text
    assert "ankle_3: {field: 'effort[ankle_3]'" in text


def test_motors_with_exchanged_cables_are_found_but_their_sensors_could_be_exchanged_as_well(
    tmp_path,
):
    wrong = exchange(SIMULATION, "    hip_1: {", "    ankle_3: {")
    _, diagnosis, text = move(tmp_path, simulation=wrong)
    assert sorted(list_findings(diagnosis)) == [("ankle_3", False), ("hip_1", False)]
    assert all("or else" in one.correction for one in diagnosis.findings) and text == WIRING


def test_a_dead_motor_and_a_stuck_sensor_are_named(tmp_path):
    wrong = SIMULATION.replace("ankle_4: {scale: 250.0", "ankle_4: {scale: 1.0e+9")
    stuck = WIRING.replace("'velocity[hip_2]', scale: 0.1", "'velocity[hip_2]', scale: 1.0e-6")
    _, diagnosis, _ = move(tmp_path, stuck, wrong)
    assert list_findings(diagnosis) == [("ankle_4", False), ("hip_2.velocity", False)]
    assert diagnosis.silent == ["ankle_4"] and diagnosis.unmoved == ["hip_2.velocity"]


def test_a_sensor_whose_reading_is_missing_now_and_then_is_still_found(tmp_path):
    recording, whole, _ = move(tmp_path)
    (begin, _), hip = recording.plan.spans[0], recording.ids.index("hip_1.position")
    readings = recording.readings.copy()
    readings[begin + 20, hip] = readings[begin + 30 : begin + 35, hip] = np.nan
    command = load_wiring(tmp_path / "wiring.yaml").command
    diagnosis = diagnose_wiring_by_motion(replace(recording, readings=readings), command)
    assert not diagnosis.findings and not diagnosis.unmoved
    assert [_key(one) for one in diagnosis.pairs] == [_key(one) for one in whole.pairs]


def test_if_all_motors_or_all_sensors_are_reversed_it_says_that_it_cannot_tell(tmp_path):
    wrong = SIMULATION.replace("{scale: 250.0", "{scale: -250.0")
    recording, diagnosis, _ = move(tmp_path, simulation=wrong)
    assert not diagnosis.findings and "cannot tell" in diagnosis.notes[0]
    assert {one.sign for one in diagnosis.pairs} == {-1}
    # The same robot with noisy, late sensors: the pairing stays, and no sign becomes another.
    noise = np.random.default_rng(0).normal(0.0, 0.02, recording.readings.shape)
    late = np.roll(recording.readings, 2, axis=0) + noise
    pairs = diagnose_wiring_by_motion(
        replace(recording, readings=late), load_wiring(tmp_path / "wiring.yaml").command
    ).pairs
    assert [one[:2] for one in map(_key, pairs)] == [one[:2] for one in map(_key, diagnosis.pairs)]
    assert {one.sign for one in pairs} == {-1}


def _key(pair) -> tuple[int, int, int]:
    return pair.actuator, pair.channel, pair.sign


def test_an_ant_whose_legs_are_held_by_friction_is_said_to_move_too_little_and_no_more(tmp_path):
    (tmp_path / "w.yaml").write_text(WIRING)
    (tmp_path / "s.yaml").write_text(
        SIMULATION.replace("step_s:", "options: {pose: on_back}\nstep_s:")
    )
    wiring = load_wiring(tmp_path / "w.yaml")
    run = MotionRun(wiring, MotionSettings(amplitude=0.01))
    play_and_time_test_motion(run, tmp_path / "s.yaml")
    (found,) = diagnose_wiring_by_motion(run.make_recording(), wiring.command).findings
    assert "move no sensor clearly" in found.text and "--amplitude" in found.correction


def test_a_pose_that_does_not_exist_is_refused_with_those_that_do(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(SIMULATION.replace("step_s:", "options: {pose: flying}\nstep_s:"))
    run = MotionRun(load_wiring(find_share_path("config/ant.yaml")), MotionSettings())
    with pytest.raises(WiringError, match=r"'flying' \(allowed: standing, hanging, on_back\)"):
        play_and_time_test_motion(run, path)


@st.composite
def commands(draw: st.DrawFn) -> CommandConfig:
    """One to three actuators with any limits, rates and safe commands."""
    actuators = []
    for number in range(draw(st.integers(1, 3))):
        low = draw(st.floats(-1e3, 1e3))
        high = low + draw(st.floats(1e-3, 1e3))
        actuators.append(
            ActuatorConfig(
                f"motor_{number}",
                1.0,
                0.0,
                (low, high),
                draw(st.just(0.0) | st.floats(1e-3, 1e3)),
                min(max(low + draw(st.floats(0.0, 1.0)) * (high - low), low), high),
            )
        )
    return CommandConfig((MessageConfig("commands", "x/msg/X", "data", tuple(actuators)),))


@settings(max_examples=60)
@given(commands(), st.floats(5.0, 300.0), st.floats(0.01, 1.0))
def test_no_command_exceeds_a_limit_or_a_rate_and_the_gate_has_nothing_to_limit(
    command, rate_hz, amplitude
):
    gate = SafetyGate(command, 1.0 / rate_hz)
    low, high = np.array([one.limits for one in command.actuators]).T
    centre = gate.safe_command().copy()
    plan = plan_motion(command, rate_hz, centre, (low, high), MotionSettings(amplitude=amplitude))
    last = centre
    for wave in plan.waves:
        sent = gate(centre + wave)
        assert (low <= sent).all() and (sent <= high).all()
        change = np.abs(sent - last) * rate_hz
        for one, fast in zip(command.actuators, change, strict=True):
            assert one.max_rate == 0.0 or fast <= one.max_rate * (1.0 + 1e-6) + 1e-9
        assert np.count_nonzero(wave) <= 1, "one actuator at a time"
        last = sent
    assert gate.counts.rate_limited == 0 and gate.counts.not_finite == 0
    assert (last == centre).all()
    room = np.maximum(centre - low, high - centre)
    assert (plan.amplitudes <= amplitude * room + 1e-9).all()


SYSTEMS = {
    "a mass": lambda u: np.cumsum(np.cumsum(u)),
    "a damper": np.cumsum,
    "a servo": lambda u: u,
    "a slow servo": lambda u: np.convolve(u, 0.1 * 0.9 ** np.arange(len(u)))[: len(u)],
}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("delay", [0, 3])
def test_sign_and_delay_are_found_whatever_holds_the_joint(system, delay):
    drive = np.concatenate([make_sine_sweep(120, 3, one_sided=False), np.zeros(12)])
    position = np.concatenate([np.zeros(1 + delay), SYSTEMS[system](drive)])[: len(drive) + 1]
    position *= 0.1 / position.std()
    noise = np.random.default_rng(1).normal(0.0, 0.001, len(position))
    velocity = np.diff(position, prepend=0.0) * 60.0
    for sign in (1, -1):
        for readings, is_rate in ((sign * position + noise, False), (sign * velocity, True)):
            fit = fit_mass_spring_damper(drive, readings, 1 / 60, is_rate=is_rate)
            assert find_response_sign(drive, readings, 0.001, fit, is_rate=is_rate) == sign
    found = find_response_delay(fit_mass_spring_damper(drive, position, 1 / 60, is_rate=False))
    assert found is not None and found <= delay + 1, "a slow motor may explain a part of it"
    if system in ("a mass", "a servo"):
        assert abs(found - delay) <= 1


def test_a_joint_with_dry_friction_between_stops_has_the_sign_of_the_work():
    drive = make_sine_sweep(120, 3, one_sided=False)
    position, places = 0.0, [0.0]
    for push in drive:
        position += 0.02 * np.sign(push) * max(abs(push) - 0.3, 0.0)
        position = min(max(position, -0.02), 0.05)
        places.append(position)
    for sign in (1, -1):
        readings = sign * np.array(places)
        fit = fit_mass_spring_damper(drive, readings, 1 / 60, is_rate=False)
        assert find_response_sign(drive, readings, 0.0, fit, is_rate=False) == sign
