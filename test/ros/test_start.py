"""A fresh process: what is slow at its first use has been used before the first tick."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import inspect
import sys
import time
from pathlib import Path

from stand import Stand

from an_control.system.compilation import report_compilations_in_block

stand = Stand(Path(sys.argv[1]))
stand.start(engine="auto", mode="rate", watchdog_s=-1.0)
slow, walked = [], 0
audited = False
file_of = inspect.getabsfile

def count(*arguments):
    global walked
    walked += 1
    return file_of(*arguments)

def note(event, arguments):
    if audited and event in ("import", "compile", "exec"):
        slow.append((event, str(arguments[0])[:80]))

inspect.getabsfile = count
sys.addaudithook(note)
with report_compilations_in_block(lambda line: slow.append(("numba", line))):
    audited = True
    for step in range(1, 1000):
        if len(stand.commands) > 5:
            break
        stand.send(step)
        stand.executor.spin_once(timeout_sec=0.01)
    commands = len(stand.commands)
    time.sleep(0.3)  # no executor spins, so the watchdog stops the robot
    for _ in range(2000):
        if (boxes := list(Path(sys.argv[2]).rglob("*.mcap"))) and boxes[0].stat().st_size:
            break
        stand.executor.spin_once(timeout_sec=0.01)
    audited = False
assert commands > 5
assert boxes, "no black box was written"
assert not slow, slow
assert walked < 100, f"the log's first line looked at {walked} modules"
stand.close()
"""


def test_first_ticks_and_a_stop_import_and_compile_nothing_and_their_first_log_line_is_not_slow(
    tmp_path,
):
    """rclpy's logger visits all loaded modules, 700 and more, before its first line."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), os.environ["ROS_LOG_DIR"]],
        capture_output=True,
        text=True,
        timeout=170.0,
        check=False,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "acting" in done.stderr + done.stdout
