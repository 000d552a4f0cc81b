"""Field paths and the angles of a quaternion."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from an_control.wiring.messages import (
    QUATERNIONS,
    FieldPath,
    Step,
    compute_gravity_x,
    compute_gravity_y,
    compute_gravity_z,
    compute_pitch,
    compute_roll,
    compute_yaw,
    parse_field_path,
)

NUMBERS = st.floats(-1.0, 1.0)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("x", FieldPath((Step("x"),))),
        ("pose.pose.position.z", FieldPath(tuple(map(Step, ("pose", "pose", "position", "z"))))),
        ("data[3]", FieldPath((Step("data", 3),))),
        ("position[hip_1]", FieldPath((Step("position", "hip_1"),))),
        ("position[arm/left.elbow-1]", FieldPath((Step("position", "arm/left.elbow-1"),))),
        ("ranges[*]", FieldPath((Step("ranges", "*"),))),
        ("*", FieldPath((Step("*"),))),
        ("twist.*", FieldPath((Step("twist"), Step("*")))),
        ("poses[0].position.x", FieldPath((Step("poses", 0), Step("position"), Step("x")))),
        ("gravity_z(orientation)", FieldPath((Step("orientation"),), "gravity_z")),
        ("roll(pose.orientation)", FieldPath((Step("pose"), Step("orientation")), "roll")),
    ],
)
def test_a_path_is_read_as_written(text: str, field: FieldPath) -> None:
    assert parse_field_path(text) == field


@pytest.mark.parametrize(
    "text",
    ["", ".", "a.", ".a", "a..b", "a[]", "a[1", "a]1[", "a[[1]]", "a[1][2]", "1a", "a b",
     "__class__", "a.__dict__", "*.a", "**", "a.*.b", "eval(a)", "roll()", "roll(a",
     "roll(roll(a))", "a[1]b", "sin(gravity_x(a))", "gravity(a)",
     "a[9999999999]", "_a"],
)  # fmt: skip
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_field_path(text)


@given(st.text(max_size=40))
def test_any_text_is_a_path_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert parse_field_path(text).steps


def test_angles_are_those_of_pybullet() -> None:
    pybullet = pytest.importorskip("pybullet")
    random = np.random.default_rng(0)
    for _ in range(5000):
        quaternion = random.normal(size=4)
        quaternion /= np.linalg.norm(quaternion)
        theirs = pybullet.getEulerFromQuaternion(quaternion.tolist())
        ours = [angle(*quaternion.tolist()) for angle in (compute_roll, compute_pitch, compute_yaw)]
        turned = np.remainder(np.subtract(ours, theirs) + math.pi, math.tau) - math.pi
        assert np.abs(turned).max() < 1e-12


def test_gravity_is_the_turned_vector_down_of_scipy() -> None:
    rotation = pytest.importorskip("scipy.spatial.transform").Rotation
    random = np.random.default_rng(1)
    for quaternion in random.normal(size=(500, 4)):
        expected = rotation.from_quat(quaternion).inv().apply([0.0, 0.0, -1.0])
        ours = [
            part(*quaternion.tolist())
            for part in (compute_gravity_x, compute_gravity_y, compute_gravity_z)
        ]
        np.testing.assert_allclose(ours, expected, atol=1e-12)
    assert [
        part(0.0, 0.0, 0.0, 1.0)
        for part in (compute_gravity_x, compute_gravity_y, compute_gravity_z)
    ] == [0, 0, -1]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("turn", [-3.0, -1.0, 0.0, 0.5, 3.0])
def test_at_gimbal_lock_all_of_the_turn_is_yaw_as_in_pybullet(sign: float, turn: float) -> None:
    pybullet = pytest.importorskip("pybullet")
    quaternion = pybullet.getQuaternionFromEuler([0.0, sign * math.pi / 2, turn])
    for attitude in (quaternion, [-part for part in quaternion]):
        assert compute_roll(*attitude) == 0.0
        assert compute_pitch(*attitude) == sign * math.pi / 2
        assert compute_yaw(*attitude) == pytest.approx(turn, abs=1e-12)
    assert pybullet.getEulerFromQuaternion(quaternion)[0] == 0.0


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.floats(0.01, 100.0))
def test_the_length_of_a_quaternion_does_not_matter(
    x: float, y: float, z: float, w: float, length: float
) -> None:
    if not x * x + y * y + z * z + w * w > 0.1:
        return
    for angle in (compute_roll, compute_pitch, compute_yaw):
        value, scaled = angle(x, y, z, w), angle(x * length, y * length, z * length, w * length)
        assert math.cos(value - scaled) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("place", range(4))
def test_no_attitude_gives_nan_and_not_an_angle(bad: float, place: int) -> None:
    quaternion = [0.5, 0.5, 0.5, 0.5]
    quaternion[place] = bad
    assert all(math.isnan(part(*quaternion)) for part in QUATERNIONS.values())
    assert all(math.isnan(part(0.0, 0.0, 0.0, 0.0)) for part in QUATERNIONS.values())
