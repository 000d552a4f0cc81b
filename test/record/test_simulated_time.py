"""Recordings in simulated time: all of their times are the simulator's."""

from pathlib import Path

from builtin_interfaces.msg import Time
from rclpy.parameter import Parameter
from rosgraph_msgs.msg import Clock
from stand import Stand

from an_control.record.reader import Bag

BEGIN_S = 100


def test_every_entry_of_a_recording_has_the_simulators_time(stand: Stand, tmp_path: Path) -> None:
    overrides = [
        Parameter(name, value=value)
        for name, value in {
            "wiring": str(stand.wiring), "model": str(stand.model), "engine": "numpy",
            "mode": "lockstep", "record": str(tmp_path / "bags"), "use_sim_time": True,
            "thread_priority": 0,
        }.items()
    ]  # fmt: skip
    node = stand.start(activate=False, options={"parameter_overrides": overrides})
    clock = stand.peer.create_publisher(Clock, "/clock", 10)
    node.trigger_configure()
    stand.until(lambda: clock.get_subscription_count() == 1, "the clock matched")
    node.trigger_activate()
    stand.connect()

    def tell_time() -> bool:
        clock.publish(Clock(clock=Time(sec=BEGIN_S)))
        return node.get_clock().now().nanoseconds == BEGIN_S * 10**9

    stand.until(tell_time, "the simulated time")
    stand.step(0)
    node._set_estop("by service")
    node.trigger_shutdown()
    (found,) = (tmp_path / "bags").iterdir()
    times = {entry.log_ns for entry in Bag(found).iterate_entries()}
    assert times == {BEGIN_S * 10**9}
