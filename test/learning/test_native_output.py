"""What PyBullet prints by itself stays out of a program's output."""

import os
import subprocess
import sys

import pytest

from an_control.system.environment_output import discard_native_output

SCRIPT = """
from an_control_sim.gym.environments import make_environment
env = make_environment("pybullet_envs_gymnasium:HopperBulletEnv-v0")
env.reset(seed=1)
env.reset(seed=2)
print("the end")
"""


def test_a_pybullet_environment_prints_nothing_of_its_own_to_standard_output():
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120
    )
    assert ended.stdout == "the end\n"


def test_output_before_and_after_is_kept_and_also_after_an_error(capfd):
    print("before")
    with pytest.raises(KeyError), discard_native_output():
        os.write(1, b"meanwhile")
        raise KeyError
    os.write(1, b"after")
    assert capfd.readouterr().out == "before\nafter"
