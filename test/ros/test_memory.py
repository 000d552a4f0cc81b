"""Nothing grows: cycles of the lifecycle, rewires."""

from __future__ import annotations

from pathlib import Path

from stand import Stand

PAGE = 4096


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def cycle(stand: Stand) -> None:
    node = stand.node
    for transition in (
        node.trigger_configure,
        node.trigger_activate,
        node.trigger_deactivate,
        node.trigger_cleanup,
    ):
        assert transition().to_label() == "transition_success"
    stand.executor.spin_once(timeout_sec=0)


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_two_hundred_cycles_of_the_lifecycle_leave_memory_and_threads_flat(stand):
    node = stand.start(activate=False)
    for _ in range(30):
        cycle(stand)
    before, running = resident(), threads()
    for _ in range(200):
        cycle(stand)
    assert threads() < running + 20  # the middleware starts and ends some of its own
    assert resident() - before < 5e6
    kinds = (node.publishers, node.subscriptions, node.timers)
    assert sum(len(list(kind)) for kind in kinds) < 10


def test_five_hundred_rewires_leave_memory_flat(stand):
    stand.start()
    loop = stand.node._loop

    def rewire_to(joints: str, tilt: str) -> None:
        topics = {"sources.joints.topic": joints, "sources.tilt.topic": tilt}
        loop.rewire(loop.make_rewired_table(loop.controller.wiring.with_changes(topics)))

    def rewire(number: int) -> None:
        rewire_to(f"joints_{number % 2}", f"tilt_{number % 2}")
        stand.executor.spin_once(timeout_sec=0)

    for number in range(50):
        rewire(number)
    before = resident()
    for number in range(500):
        rewire(number)
    assert resident() - before < 5e6
    rewire_to("joint_states", "tilt")
    stand.connect()
    stand.step(1)
