"""The environment every test runs in: ROS 2 kept to this machine and run, one thread a process.

Set before numpy or rclpy can be imported; the wheels' bootstrap and child processes inherit it.
"""

import atexit
import contextlib
import ctypes
import fcntl
import os
import random
import re
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest


def _take_domain() -> int:
    """Move to a ROS domain where no other test run is.

    Returns the lock that keeps other runs out, to be closed when the domain is left.
    """
    for number in random.SystemRandom().sample(range(1, 101), 100):
        path = Path(tempfile.gettempdir(), f"an_control_ros_domain_{number}.lock")
        lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
        else:
            os.environ["ROS_DOMAIN_ID"] = str(number)
            return lock
    raise RuntimeError("other test runs hold all of the ROS domains 1 to 100")


for name in ("OPENBLAS", "OMP", "MKL", "NUMEXPR", "VECLIB_MAXIMUM"):
    os.environ[f"{name}_NUM_THREADS"] = "1"
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ["ROS_PYTHON_CHECK_FIELDS"] = "1"
os.environ["ROS_LOG_DIR"] = tempfile.mkdtemp(prefix="an_control_ros_log_")
atexit.register(shutil.rmtree, os.environ["ROS_LOG_DIR"], ignore_errors=True)
os.environ.setdefault("MPLBACKEND", "Agg")

# A shell starts what it puts into the background with SIGINT ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Drawn examples are fresh at every run by hand and the same at every run of CI.
hypothesis.settings.register_profile("fresh", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "fresh")

ROOT = Path(__file__).resolve().parent.parent
EXTRA_PACKAGES = {
    "Box2D", "ale_py", "cma", "distributed", "gymnasium", "matplotlib", "mcap_ros2", "msgspec",
    "numba", "onnx", "onnxruntime", "onnxscript", "pyarrow", "pybullet", "pybullet_envs_gymnasium",
    "pygame", "rosbags", "sb3_contrib", "sklearn", "stable_baselines3", "tensorboard", "torch",
}  # fmt: skip
"""The packages of the extras that package.xml does not name: `colcon test` runs without them."""


def explain_missing_extra(error_text: str) -> str:
    """Return a reason to skip a test if its error is the lack of an extra's package, else ""."""
    missing = re.findall(r"ModuleNotFoundError: No module named '(\w+)", error_text)
    return f"needs {missing[-1]}" if missing and missing[-1] in EXTRA_PACKAGES else ""


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a test module that imports a package of an extra which is not installed."""
    report = yield
    reason = explain_missing_extra(str(report.longrepr)) if report.failed else ""
    if reason:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 1, f"Skipped: {reason}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Skip a test that imports a package of an extra which is not installed."""
    try:
        return (yield)
    except ModuleNotFoundError as error:
        reason = explain_missing_extra(f"ModuleNotFoundError: {error}")
        if reason:
            pytest.skip(reason)
        raise


pytest_runtest_setup = pytest_runtest_call


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout; tests that need it skip without it."""
    path = ROOT.parent / "shared"
    if not (path / "reference").is_dir():
        pytest.skip(f"needs the reference data in {path}")
    return path


@pytest.fixture(scope="session", autouse=True)
def _domain_of_the_run() -> Iterator[None]:
    """A ROS domain for what is shared by tests."""
    lock = _take_domain()
    yield
    os.close(lock)


@pytest.fixture(autouse=True)
def _domain_of_the_test(_domain_of_the_run: None) -> Iterator[None]:
    """A ROS domain for each test. A participant that is gone stays known for up to 20 s where its
    farewell is lost, as on a busy machine."""
    shared = os.environ["ROS_DOMAIN_ID"]
    lock = _take_domain()
    yield
    os.close(lock)
    os.environ["ROS_DOMAIN_ID"] = shared


@pytest.fixture(scope="session", autouse=True)
def _leave_nothing_behind() -> Iterator[None]:
    """After the last test, kill the processes that tests left running.

    As "subreaper" this process also inherits the children of a launcher that has died.
    """
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)
    yield
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    """All processes below `pid`, children before their own children."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        below = [int(child) for child in children.read_text().split()]
    except FileNotFoundError:
        return []
    return [one for child in below for one in (child, *_descendants(child))]
