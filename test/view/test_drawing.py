"""How a robot is drawn: the drawing files, and which of them is taken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

pytest.importorskip("msgspec")
from an_control.system.share import find_share_path
from an_control.view.drawing import find_skeleton_for_drawing, read_skeleton
from an_control.wiring.checked_yaml import WiringError

ARM = """
an_control_drawing: 1
base: {height: 0.5, moves: false}
view: {yaw: 0.1, tilt: 0.2, span: 3}
links:
  lift: {joint: lift, kind: prismatic, axis: [0, 0, 1], to: [0, 0, 0.4], width: 0.1}
  arm:
    {parent: lift, joint: arm, axis: [0, 1, 0], to: [0.3, 0, 0], width: 0.05, colour: [0, 50, 50]}
"""


@pytest.mark.parametrize("robot", ["ant", "cartpole"])
def test_a_shipped_drawing_moves_by_all_joints_that_its_robot_publishes(robot):
    simulation = yaml.safe_load(find_share_path(f"config/{robot}_sim.yaml").read_text())
    joints = simulation["publish"]["joint_states"]["fields"]["name"]
    skeleton = find_skeleton_for_drawing(joints, "")
    assert skeleton == read_skeleton(find_share_path(f"config/{robot}_drawing.yaml"))
    assert skeleton.joints == set(joints)
    assert find_skeleton_for_drawing(joints[1:], "") is None


def test_the_example_on_the_page_can_be_read(tmp_path):
    page = (Path(__file__).parents[2] / "docs/how-to/watch.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(an_control_drawing.*?)```", page, re.DOTALL)
    (tmp_path / "walker_drawing.yaml").write_text(example)
    assert find_skeleton_for_drawing(["hip", "knee"], str(tmp_path / "walker.yaml")).joints == {
        "hip",
        "knee",
    }


def test_every_shipped_drawing_can_be_read():
    paths = sorted(find_share_path("config").glob("*_drawing.yaml"))
    assert len(paths) >= 2
    for path in paths:
        assert read_skeleton(path).joints


def test_the_drawing_beside_the_wiring_comes_before_a_shipped_one(tmp_path):
    (tmp_path / "arm_drawing.yaml").write_text(ARM)
    joints = ["arm", "lift", "cart", "pole"]
    assert find_skeleton_for_drawing(joints, str(tmp_path / "arm.yaml")).joints == {"arm", "lift"}
    for other in (str(tmp_path / "leg.yaml"), "/", ".", "no\0path", "x" * 5000):
        assert find_skeleton_for_drawing(joints, other).joints == {"cart", "pole"}


def test_a_drawing_beside_the_wiring_may_name_only_joints_of_its_robot(tmp_path):
    path = tmp_path / "arm_drawing.yaml"
    path.write_text(ARM)
    with pytest.raises(WiringError) as refused:
        find_skeleton_for_drawing(["arm", "lifter"], str(tmp_path / "arm.yaml"))
    assert str(refused.value) == (
        f"{path}: links.lift.joint: 'lift' is not allowed; allowed:"
        " a joint of the robot: arm, lifter"
    )


@pytest.mark.parametrize(
    ("good", "bad", "named"),
    [
        ("drawing: 1", "drawing: 2", "an_control_drawing: 2 is not allowed; allowed: 1"),
        ("links:", "linkage:", "did you mean 'links'?"),
        ("height: 0.5", "height: high", "base.height: 'high' is not allowed; allowed: m, -1000"),
        ("moves: false", "moves: 1", "base.moves: 1 is not allowed; allowed: true or false"),
        ("tilt: 0.2", "tilt: 20", "view.tilt: 20 is not allowed; allowed: rad, 0 to 1.5"),
        ("span: 3", "span: 0", "view.span: 0 is not allowed; allowed: m, 0.01"),
        (
            "parent: lift",
            "parent: arm",
            "links.arm.parent: 'arm' is not allowed; allowed: a link before",
        ),
        ("parent: lift", "parent: [1]", "links.arm.parent: [1] is not allowed; allowed: a link"),
        ("prismatic", "sliding", "links.lift.kind: 'sliding' is not allowed; allowed: revolute"),
        ("[0, 0, 1]", "[0, 0, 0]", "links.lift.axis: [0, 0, 0] is not allowed; allowed: [x, y, z]"),
        ("[0, 0, 1]", "z", "links.lift.axis: 'z' is not allowed; allowed: [x, y, z]"),
        (" axis: [0, 1, 0],", "", "links.arm: 'axis' is missing; needed: to, width, axis"),
        ("joint: arm, ", "", "links.arm.axis: this key is not allowed"),
        ("joint: arm", "joint: 3", "links.arm.joint: 3 is not allowed; allowed: the name of"),
        ("[0.3, 0, 0]", "[0.3, 0]", "links.arm.to: [0.3, 0] is not allowed; allowed: [x, y, z] in"),
        ("[0.3, 0, 0]", "[.nan, 0, 0]", "links.arm.to: nan is not allowed; allowed: [x, y, z]"),
        ("width: 0.05", "width: -1", "links.arm.width: -1 is not allowed; allowed: m, 0 to 1000"),
        ("[0, 50, 50]", "[0, 50, 500]", "links.arm.colour: 500 is not allowed; allowed: [hue"),
        ("[0, 50, 50]", "red", "links.arm.colour: 'red' is not allowed; allowed: [hue"),
    ],
)
def test_an_error_names_file_key_value_and_what_is_allowed(tmp_path, good, bad, named):
    path = tmp_path / "arm_drawing.yaml"
    assert good in ARM
    path.write_text(ARM.replace(good, bad, 1))
    with pytest.raises(WiringError) as refused:
        read_skeleton(path)
    assert str(refused.value).startswith(f"{path}: ") and named in str(refused.value)


def test_a_drawing_that_never_moves_is_refused(tmp_path):
    path = tmp_path / "still_drawing.yaml"
    path.write_text("an_control_drawing: 1\nlinks:\n  post: {to: [0, 0, 1], width: 0.1}\n")
    with pytest.raises(WiringError, match="at least one has a joint"):
        read_skeleton(path)
