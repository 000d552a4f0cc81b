"""The environment every test runs in: ROS 2 kept to this machine and run, one thread a process.

Set before numpy or rclpy can be imported; the wheels' bootstrap and child processes inherit it.
"""

import os
import random
import tempfile

for name in ("OPENBLAS", "OMP", "MKL", "NUMEXPR", "VECLIB_MAXIMUM"):
    os.environ[f"{name}_NUM_THREADS"] = "1"
os.environ["ROS_DOMAIN_ID"] = str(random.SystemRandom().randrange(1, 101))
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ["ROS_PYTHON_CHECK_FIELDS"] = "1"
os.environ["ROS_LOG_DIR"] = tempfile.mkdtemp(prefix="an_control_ros_log_")
os.environ.setdefault("MPLBACKEND", "Agg")

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout; tests that need it skip without it."""
    path = ROOT.parent / "shared"
    if not (path / "reference").is_dir():
        pytest.skip(f"needs the reference data in {path}")
    return path
