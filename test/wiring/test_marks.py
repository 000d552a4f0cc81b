"""Readings that a standard message marks as absent are missing, and the reason says so."""

from __future__ import annotations

import pytest

pytest.importorskip("sensor_msgs.msg")
from sensor_msgs.msg import Imu, NavSatFix

from an_control.wiring import ChannelTable, load_wiring

HEAD = """
an_control_wiring: 1
robot: base
rate_hz: 50
min_present_share: 0.1
sources: {s: {topic: s, type: %s, max_age_s: 0.5}}
channels: {%s}
command:
  topic: c
  type: std_msgs/msg/Float64MultiArray
  field: data
  actuators: {a: {limits: [-1, 1], safe: 0.0}}
"""
IMU = {
    "roll": "roll(orientation)",
    "q": "orientation.w",
    "gyro": "angular_velocity.z",
    "forward": "linear_acceleration.x",
}


def read(folder, type_: str, fields: dict[str, str], message) -> tuple[set[str], list[str]]:
    path = folder / "base.yaml"
    channels = ", ".join(f"{id_}: {{source: s, field: {field}}}" for id_, field in fields.items())
    path.write_text(HEAD % (type_, channels))
    table = ChannelTable(load_wiring(path))
    table.store_message("s", message, None, 0)
    found = set(table.read(0).ids)
    return found, [str(notice) for notice in table.pop_notices()]


@pytest.mark.parametrize(
    ("field", "lost"),
    [
        ("orientation", {"roll", "q"}),
        ("angular_velocity", {"gyro"}),
        ("linear_acceleration", {"forward"}),
    ],
)
def test_what_an_imu_marks_as_not_measured_is_missing_and_not_zero(tmp_path, field, lost):
    message = Imu()
    message.orientation.w = 1.0
    getattr(message, f"{field}_covariance")[0] = -1.0
    found, said = read(tmp_path, "sensor_msgs/msg/Imu", IMU, message)
    assert found == set(IMU) - lost
    (line,) = said
    assert line.endswith(
        f"lost: {field}_covariance[0] is -1, by which the sender says that it has no {field}: read"
        " it from another source, or leave the channel out"
    )
    assert all(name in line for name in lost)


def test_an_unknown_covariance_of_zeros_says_nothing(tmp_path):
    message = Imu()
    message.orientation.w = 1.0
    assert read(tmp_path, "sensor_msgs/msg/Imu", IMU, message) == (set(IMU), [])


def test_every_number_of_a_message_knows_its_mark(tmp_path):
    message = Imu()
    message.orientation.w = 1.0
    message.orientation_covariance[0] = -1.0
    found, _ = read(tmp_path, "sensor_msgs/msg/Imu", {'"imu.*"': '"*"'}, message)
    assert not {name for name in found if name.startswith("imu.orientation.")}
    assert "imu.angular_velocity.x" in found and "imu.orientation_covariance.0" in found


def test_without_a_fix_there_is_no_position(tmp_path):
    fields = {"north": "latitude", "up": "altitude", "status": "status.status"}
    fixed, lost = NavSatFix(latitude=1.0, altitude=2.0), NavSatFix(latitude=1.0, altitude=2.0)
    lost.status.status = -1
    type_ = "sensor_msgs/msg/NavSatFix"
    assert read(tmp_path, type_, fields, fixed) == (set(fields), [])
    found, said = read(tmp_path, type_, fields, lost)
    assert found == {"status"}
    assert said[0].endswith(
        "by which the sender says that it has no fix: readings count again once it has one"
    )
