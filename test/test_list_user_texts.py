"""The list of scripts/list_user_texts.py holds all texts that users can see, with their places."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = runpy.run_path(str(ROOT / "scripts/list_user_texts.py"))


def test_the_list_holds_texts_of_every_kind_sorted_by_file_and_line() -> None:
    found = SCRIPT["find_user_texts"]([ROOT / one for one in SCRIPT["SOURCES"]])
    assert found == sorted(found) and {one.kind for one in found} == set(SCRIPT["KINDS"])
    texts = {one.text for one in found}
    assert "the watchdog is off (parameter watchdog_s)" in texts
    assert "no message yet on {self.config.topic}" in texts
    assert "age of readings {name} [ms]" in texts
    assert "path of the robot's wiring YAML" in texts
    assert "each actuator once" in texts
    assert "Share of the episodes that have one of --disturb." in texts  # learning/api
    assert "probability of a spike in each reading" in texts  # disturbances
    assert "seconds to wait for the policy" in texts  # arguments of launch files
    one = next(one for one in found if one.text == "each actuator once")
    line = (ROOT / one.file).read_text(encoding="utf-8").splitlines()[one.line - 1]
    assert one.file == "an_control/wiring/command.py" and "each actuator once" in line


def test_it_prints_one_line_for_each_message_of_the_kinds_and_files_asked_for(capsys) -> None:
    assert (
        SCRIPT["main"](["--kind", "log", "--", str(ROOT / "an_control/ros/control_loop.py")]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.startswith("an_control/ros/control_loop.py:") for line in lines)
    assert all(line.split(": ", 2)[1] == "log" for line in lines)
