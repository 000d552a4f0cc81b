"""The examples run."""

import runpy
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "examples"


def test_the_policy_acts_in_python_without_ros(capsys):
    runpy.run_path(str(FOLDER / "policy_in_python.py"), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 5
