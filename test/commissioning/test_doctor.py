"""The wiring doctor names the wrong line of a wiring, and nothing where none is wrong."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from an_control.commissioning.doctor import CandidateWiring, Recording, diagnose, report
from an_control.commissioning.doctor.hypotheses import (
    find_groups_of_similar_ids,
    iterate_swaps_of_robot_parts,
)
from an_control.commissioning.doctor.kinematics import find_position_rate_pairs
from an_control.commissioning.doctor.likelihood import Likelihood
from an_control.commissioning.doctor.repair import Repair
from an_control.commissioning.doctor.worker import Examiner
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol
from an_control.wiring import load_wiring
from experiments.doctor.mistakes import MODELS, Mistake, Robot
from experiments.doctor.run import TABLE

WIRING = MODELS.parent / "config/mobile_base.yaml"
TICKS = 200


@pytest.fixture(scope="module")
def robot():
    return Robot(MODELS / "mobile_base.safetensors", WIRING)


@pytest.fixture(scope="module")
def ant():
    return Robot(MODELS / "ant.safetensors", MODELS.parent / "config/ant.yaml")


def examined(robot, *mistakes):
    recording, _ = robot.record_run_and_mean_return(mistakes, seed=3, ticks=TICKS)
    return diagnose(recording, robot.forward), recording


def repaired(diagnosis, recording):
    repair = Repair(WIRING.read_text(), load_wiring(WIRING), recording, None)
    repair.write_corrections(diagnosis.corrected)
    return repair


def test_nothing_is_found_where_nothing_is_wrong(robot):
    diagnosis, recording = examined(robot)
    assert diagnosis.findings == () and diagnosis.lag == 0
    assert repaired(diagnosis, recording).diff == ""


def test_a_gyro_with_the_sign_of_ned_is_named_with_its_line(robot):
    diagnosis, recording = examined(robot, Mistake("sign", ("gyro",)))
    (found,) = diagnosis.findings
    assert (found.kind, found.members) == ("sign", ("gyro",))
    diff = repaired(diagnosis, recording).diff
    assert "+  gyro: {source: imu, field: angular_velocity.z, scale: -1}" in diff
    assert diff.count("\n-  ") == 1


def test_a_steering_command_that_is_reversed_is_named_and_no_sensor_is(robot):
    diagnosis, recording = examined(robot, Mistake("motor reversed", ("turn",), -1.0))
    (found,) = diagnosis.findings
    assert (found.kind, found.members) == ("motor reversed", ("turn",))
    assert "turn: {field: twist.angular.z, scale: -2," in repaired(diagnosis, recording).text


def test_degrees_are_named_and_converted(robot):
    diagnosis, recording = examined(robot, Mistake("scale", ("gyro",), 180.0 / np.pi))
    (found,) = diagnosis.findings
    assert found.members == ("gyro",) and "degrees instead of radians" in found.text
    assert "scale: 0.0174532925" in repaired(diagnosis, recording).text


def test_two_channels_that_are_swapped_get_each_others_field(robot):
    names = "velocity.forward", "velocity.turn"
    diagnosis, recording = examined(robot, Mistake("swapped", names, 0.0, names[::-1]))
    (found,) = diagnosis.findings
    assert found.kind == "swapped" and set(found.members) == set(names)
    text = repaired(diagnosis, recording).text
    assert "velocity.forward: {source: odometry, field: twist.twist.angular.z}" in text


def test_a_sensor_that_is_stuck_at_another_value_after_each_start_is_stuck(robot):
    recording, _ = robot.record_run_and_mean_return(
        (Mistake("stuck", ("goal.distance",)),), seed=2108, ticks=TICKS
    )
    assert len(set(recording.raw[:, recording.ids.index("goal.distance")])) > 1
    (found,) = diagnose(recording, robot.forward).findings
    assert (found.kind, found.members) == ("stuck", ("goal.distance",))


def test_what_always_reads_the_same_is_stuck_and_no_line_repairs_it(robot):
    diagnosis, recording = examined(robot, Mistake("stuck", ("velocity.turn",)))
    (found,) = diagnosis.findings
    assert (found.kind, found.members, found.fixable) == ("stuck", ("velocity.turn",), False)
    assert repaired(diagnosis, recording).diff == ""


def test_readings_that_all_are_late_are_noted_and_no_mistake(robot):
    recording, _ = robot.record_run_and_mean_return(seed=3, ticks=TICKS)
    later = replace(recording, raw=np.roll(recording.raw, 1, 0))
    later.starts[1:] = recording.starts[:-1]
    diagnosis = diagnose(later, robot.forward)
    assert diagnosis.lag == 1 and diagnosis.findings == ()
    assert any("1 tick late" in note for note in diagnosis.notes)


def test_a_recording_that_is_too_short_says_so(robot):
    recording, _ = robot.record_run_and_mean_return(seed=3, ticks=30)
    diagnosis = diagnose(recording, robot.forward)
    assert diagnosis.findings == () and "too few" in diagnosis.notes[0]


def test_what_the_recording_cannot_tell_is_listed_with_what_would(robot):
    recording, _ = robot.record_run_and_mean_return(seed=3, ticks=TICKS)
    still = replace(recording, actions=np.zeros_like(recording.actions))
    diagnosis = diagnose(still, robot.forward)
    for kind in ("motor reversed", "motor dead"):
        assert {("forward",), ("turn",)} == {
            one.members for one in diagnosis.unseen if one.kind == kind
        }
    assert "not detectable in this recording: motor forward" in " ".join(
        report.list_diagnosis_notes(diagnosis)
    )


def test_a_delay_that_would_not_show_is_listed(robot):
    diagnosis, _ = examined(robot)
    late = {name for one in diagnosis.unseen if one.kind == "delay" for name in one.members}
    assert any(name.startswith("scan.") for name in late), "rays that hardly change"


def test_a_sign_that_shows_only_while_the_robot_turns_is_found(robot):
    recording, _ = robot.record_run_and_mean_return(
        [Mistake("sign", ("goal.y",))], seed=2109, ticks=TICKS
    )
    (found,) = diagnose(recording, robot.forward).findings
    assert (found.kind, found.members) == ("sign", ("goal.y",))


def test_a_dead_drive_is_not_taken_for_the_sensors_that_it_no_longer_changes(robot):
    recording, _ = robot.record_run_and_mean_return(
        [Mistake("motor dead", ("forward",), 0.0)], seed=2107, ticks=TICKS
    )
    diagnosis = diagnose(recording, robot.forward)
    (found,) = diagnosis.findings
    assert (found.kind, found.members) == ("motor dead", ("forward",))
    assert diagnosis.alternatives == ()


def test_an_exchange_of_rays_that_would_not_show_is_listed(robot):
    names = "scan.left.1", "scan.left.0"
    mistake = Mistake("swapped", names, 0.0, names[::-1])
    recording, _ = robot.record_run_and_mean_return([mistake], seed=2116, ticks=TICKS)
    diagnosis = diagnose(recording, robot.forward)
    assert diagnosis.findings == ()
    swapped = [set(one.members) for one in diagnosis.unseen if one.kind == "swapped"]
    assert set(names) in swapped
    assert "exchanges of some of these" in " ".join(report.list_diagnosis_notes(diagnosis))


def test_a_robot_that_drives_backwards_is_not_also_given_exchanged_rays(robot):
    for seed in (2332, 2336):
        recording, _ = robot.record_run_and_mean_return(
            [Mistake("motor reversed", ("forward",), -1.0)], seed=seed, ticks=TICKS
        )
        (found,) = diagnose(recording, robot.forward).findings
        assert (found.kind, found.members) == ("motor reversed", ("forward",))


def test_the_sign_of_a_ray_is_not_taken_for_an_order_of_all_rays(robot):
    recording, _ = robot.record_run_and_mean_return(
        [Mistake("sign", ("scan.right.0",))], seed=2348, ticks=TICKS
    )
    (found,) = diagnose(recording, robot.forward).findings
    assert (found.kind, found.members) == ("sign", ("scan.right.0",))


def test_a_factor_that_looks_like_an_offset_is_named_with_the_offset_as_an_alternative(robot):
    recording, _ = robot.record_run_and_mean_return(
        [Mistake("scale", ("scan.left.4",), 2.0)], seed=2309, ticks=TICKS
    )
    diagnosis = diagnose(recording, robot.forward)
    (found,) = diagnosis.findings
    assert found.members == ("scan.left.4",) and "2 times" in found.text
    assert diagnosis.alternatives == ("offset: scan.left.4",)


def test_what_did_not_change_may_be_stuck_and_is_listed(robot):
    recording, _ = robot.record_run_and_mean_return(
        [Mistake("stuck", ("scan.left.2",))], seed=2316, ticks=TICKS
    )
    diagnosis = diagnose(recording, robot.forward)
    assert diagnosis.findings == ()
    assert ("scan.left.2",) in {one.members for one in diagnosis.unseen if one.kind == "stuck"}


@pytest.mark.parametrize(
    ("motors", "seed"), [(("ankle_1", "hip_1"), 2362), (("hip_4", "ankle_4"), 2363)]
)
def test_two_motors_of_a_fallen_robot_that_are_exchanged_are_not_called_dead(ant, motors, seed):
    mistake = Mistake("motors swapped", motors, 0.0, motors[::-1])
    recording, _ = ant.record_run_and_mean_return([mistake], seed=seed, ticks=600)
    (found,) = diagnose(recording, ant.forward).findings
    assert found.kind == "motors swapped" and set(found.members) == set(motors)


def test_a_contact_that_is_one_tick_late_is_named_on_a_robot_that_walks(ant):
    recording, _ = ant.record_run_and_mean_return(
        [Mistake("delay", ("foot_3.contact",), 1)], seed=2359, ticks=600
    )
    (found,) = diagnose(recording, ant.forward).findings
    assert (found.kind, found.members, found.delay) == ("delay", ("foot_3.contact",), 1)


def test_a_ray_at_its_range_with_the_wrong_sign_is_not_stuck(robot):
    recording, _ = robot.record_run_and_mean_return(
        [Mistake("sign", ("scan.right.4",))], seed=2436, ticks=TICKS
    )
    (found,) = diagnose(recording, robot.forward).findings
    assert (found.kind, found.members) == ("sign", ("scan.right.4",))


def test_a_robot_that_does_not_start_has_a_dead_motor_and_not_four_bad_sensors(robot):
    recording, _ = robot.record_run_and_mean_return(
        [Mistake("motor dead", ("forward",))], seed=2508, ticks=TICKS
    )
    (found,) = diagnose(recording, robot.forward).findings
    assert (found.kind, found.members) == ("motor dead", ("forward",))


def test_a_unit_is_named_where_no_sensor_at_all_would_explain_a_little_more(robot):
    mistake = Mistake("scale", ("velocity.forward",), 180.0 / np.pi)
    recording, _ = robot.record_run_and_mean_return([mistake], seed=2417, ticks=TICKS)
    (found,) = diagnose(recording, robot.forward).findings
    assert found.members == ("velocity.forward",) and "degrees instead of radians" in found.text


@pytest.mark.parametrize(("motor", "seed"), [("hip_2", 2512), ("hip_3", 2528)])
def test_a_reversed_motor_that_felled_the_robot_comes_before_its_odd_readings(ant, motor, seed):
    recording, _ = ant.record_run_and_mean_return(
        [Mistake("motor reversed", (motor,), -1.0)], seed=seed, ticks=606
    )
    (found,) = diagnose(recording, ant.forward).findings
    assert (found.kind, found.members) == ("motor reversed", (motor,))


@pytest.mark.parametrize(("disturbance", "seed"), [("mass=1.3", 40), ("friction=0.5", 89)])
def test_other_physics_are_no_mistake_of_the_wiring(ant, disturbance, seed):
    settings = EvaluationProtocol.parse(f"none,{disturbance}").disturbance
    recording, _ = ant.record_run_and_mean_return(seed=seed, ticks=606, disturbance=settings)
    assert diagnose(recording, ant.forward).findings == ()


def test_a_stuck_sensor_of_a_fallen_robot_is_not_taken_for_late_readings(ant):
    recording, _ = ant.record_run_and_mean_return(
        [Mistake("stuck", ("ankle_4.position",))], seed=2108, ticks=TICKS
    )
    diagnosis = diagnose(recording, ant.forward)
    assert diagnosis.lag == 0
    assert [one.members for one in diagnosis.findings] == [("ankle_4.position",)]


def test_a_contact_that_reads_0_and_1_has_no_wrong_factor(ant):
    recording, _ = ant.record_run_and_mean_return(seed=3, ticks=TICKS)
    raw = recording.raw.copy()
    seldom = recording.ids.index("foot_1.contact")
    raw[:, seldom] = 0.0
    raw[60:63, seldom] = 1.0
    diagnosis = diagnose(replace(recording, raw=raw), ant.forward)
    assert not any(one.kind == "scale" for one in diagnosis.findings)


def test_a_recording_of_readings_holds_what_the_fields_carried():
    scale, offset = np.array([2.0, -1.0]), np.array([0.5, 0.0])
    readings = np.array([[2.5, 3.0], [4.5, 1.0]])
    recording = Recording.from_readings(
        readings, ("a", "b"), np.zeros((2, 1)), scale=scale, offset=offset
    )
    assert recording.raw.tolist() == [[1.0, -3.0], [2.0, -1.0]]
    candidate = CandidateWiring.from_recording(recording)
    assert (recording.raw * candidate.scale + candidate.offset == readings).all()


def test_legs_can_be_exchanged_with_or_without_their_other_channels():
    ids = [f"{j}_{leg}.{k}" for leg in (1, 2, 3) for j in ("hip", "foot") for k in ("p", "v")]
    moves = {
        name: (to, from_)
        for name, to, from_ in iterate_swaps_of_robot_parts(
            ids, find_groups_of_similar_ids(ids, None)
        )
    }
    assert any(len(to) == 12 for to, _ in moves.values()), "all channels of the legs"
    assert any({ids[k].split("_")[0] for k in to} == {"hip"} for to, _ in moves.values())
    assert all(sorted(to) == sorted(from_) for to, from_ in moves.values())


def test_comments_and_layout_of_a_wiring_stay_as_they_are(robot, tmp_path):
    recording, _ = robot.record_run_and_mean_return(seed=3, ticks=60)
    candidate = CandidateWiring.from_recording(recording)
    left = [k for k, id_ in enumerate(recording.ids) if id_.startswith("scan.left")]
    repair = Repair(WIRING.read_text(), load_wiring(WIRING), recording, None)
    repair.write_corrections(candidate.with_scale_factor(left, -1.0).with_motor_gain([0], 0.5))
    (tmp_path / "w.yaml").write_text(repair.text)
    fixed = {one.id: one for one in load_wiring(tmp_path / "w.yaml").channels}
    assert fixed["scan.left.*"].scale == 1.0 and fixed["scan.right.*"].scale == 1.0
    changed = [line for line in repair.diff.splitlines() if line.startswith(("-  ", "+  "))]
    assert len(changed) == 4 and all("scale" in line for line in changed)
    assert any("0 = free, 3 = touching" in line for line in changed), "the comment stays"
    repair = Repair(WIRING.read_text(), load_wiring(WIRING), recording, None)
    repair.write_corrections(candidate.with_scale_factor(left[:1], -1.0))
    assert repair.diff == "" and "need a line of their own" in repair.left[0]


def test_a_corrected_field_with_an_apostrophe_in_its_name_is_valid_yaml(robot, tmp_path):
    recording, _ = robot.record_run_and_mean_return(seed=3, ticks=60)
    field = "'position[l''eft]'"
    text = WIRING.read_text().replace("angular_velocity.z", field)
    (tmp_path / "w.yaml").write_text(text)
    slots = np.arange(len(recording.ids))
    place = [recording.ids.index(id_) for id_ in ("velocity.turn", "gyro")]
    slots[place] = slots[place[::-1]]
    repair = Repair(text, load_wiring(tmp_path / "w.yaml"), recording, None)
    repair.write_corrections(replace(CandidateWiring.from_recording(recording), slots=slots))
    (tmp_path / "w.yaml").write_text(repair.text)
    fields = {one.id: one.field for one in load_wiring(tmp_path / "w.yaml").channels}
    assert fields["velocity.turn"] == "position[l'eft]"


@pytest.mark.parametrize(
    ("row", "kind"),
    [("sign of its position and velocity", "sign"), ("all positions in degrees", "scale")],
)
def test_a_robot_that_falls_at_once_still_shows_its_one_mistake(ant, row, kind):
    recording, _ = ant.record_run_and_mean_return(TABLE[row], seed=10, ticks=600)
    diagnosis = diagnose(recording, ant.forward)
    (found,) = diagnosis.findings
    assert found.kind == kind and found.members == TABLE[row][0].members
    if kind == "scale":
        assert "degrees instead of radians" in found.text


@pytest.mark.parametrize("tilt", [(0.05, 0.05), (-0.08, 0.04)])
def test_an_imu_that_is_mounted_at_an_angle_has_a_wrong_offset_in_roll_and_in_pitch(ant, tilt):
    mistakes = [
        Mistake("offset", (id_,), one) for id_, one in zip(("roll", "pitch"), tilt, strict=True)
    ]
    recording, _ = ant.record_run_and_mean_return(mistakes, seed=3, ticks=600)
    found = {one.members: one for one in diagnose(recording, ant.forward).findings}
    assert set(found) == {("roll",), ("pitch",)}
    offsets = [found[id_,].offset for id_ in ("roll", "pitch")]
    assert offsets == pytest.approx([-one for one in tilt], abs=0.02)


def test_a_position_is_paired_with_its_rate_whatever_their_scales_and_signs():
    rng = np.random.default_rng(0)
    rate = np.cumsum(rng.standard_normal(300)) * 0.1
    position = np.append(0.0, np.cumsum((rate[1:] + rate[:-1]) / 2.0)) * 0.02
    readings = np.stack([57.3 * position, -rate, rng.standard_normal(300)], 1)
    recording = Recording.from_readings(readings, ("angle", "rate", "noise"), np.zeros((300, 1)))
    (pair,) = find_position_rate_pairs(recording, np.ones(3, bool))
    assert pair[:2] == (0, 1) and pair.ratio == pytest.approx(-57.3 * 0.02)


@pytest.mark.parametrize("huge", [1e300, -1e300, 9e17])
def test_readings_that_no_robot_has_make_the_running_doctor_warn_of_nothing(robot, huge):
    _, recording = examined(robot)
    raw = recording.raw.copy()
    raw[::7, 3] = raw[5::9, 8] = huge
    about = {
        "model": str(MODELS / "mobile_base.safetensors"),
        "wiring": "none.yaml",
        "ids": list(recording.ids),
        "actuators": list(recording.actuators),
        "channels": [None] * len(recording.ids),
    }
    content = io.BytesIO()
    arrays = {"raw": raw, "actions": recording.actions, "starts": recording.starts}
    np.savez(content, about=np.array(json.dumps(about)), **arrays)
    assert isinstance(Examiner().find_wiring_mistakes(content.getvalue()), list)


def test_a_motor_has_no_effect_to_show_where_no_channel_is_usable(robot):
    recording, _ = robot.record_run_and_mean_return((), seed=3, ticks=TICKS)
    likelihood, wired = (
        Likelihood(robot.forward, recording),
        CandidateWiring.from_recording(recording),
    )
    blind = replace(wired, unusable=np.ones_like(wired.unusable))
    assert np.isfinite(likelihood.estimate_motor_effects(wired, likelihood.ticks)).all()
    assert np.isnan(likelihood.estimate_motor_effects(blind, likelihood.ticks)).all()
