"""Measure whether `check --move` finds which motor moves which joint of an Ant, and how.

    python -m experiments motion_test [--seeds N] [--first-seed N] [--json FILE]

In each trial the wiring of the Ant is scrambled: the motors, the position sensors and the velocity
sensors are permuted, each by its own random permutation, and each of the 24 gets a random sign.
Then each motor is moved by the motion of `an-control check --sim --move`, without a model.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from an_control.commissioning.motion.compare import diagnose_wiring_by_motion
from an_control.commissioning.motion.plan import MotionSettings
from an_control.commissioning.motion.run import MotionRecording, MotionRun
from an_control.system.files import write_file
from an_control.system.share import find_share_path
from an_control.wiring import CommandConfig, load_wiring
from an_control_sim.bridge.direct_robot import play_and_time_test_motion

HERE = Path(__file__).resolve().parent
POSES = {"hanging": MotionSettings().amplitude, "on_back": 0.5}
"""Amplitude of the motion in each pose, as a share of the limits. On its back the Ant's legs lie on
the floor, and friction holds them against less."""
MAX_SECONDS = 30.0
DISTURBANCES = {
    "undisturbed": (0.0, 0),
    "noise": (0.02, 0),
    "3 ticks late": (0.0, 3),
    "noise, 3 ticks late": (0.02, 3),
}
"""Standard deviation of noise on all readings, after the wiring's scale, and their delay in ticks.
The commands of the motion do not depend on readings, so both can be added to a recording."""


def make_scrambled_wiring(rng: np.random.Generator) -> dict[str, Any]:
    """Return a wrong wiring for the Ant: motors and sensors are permuted, and some are reversed.

    It is the content of a wiring YAML, which says which topics and fields feed the policy.
    """
    wiring: dict[str, Any] = yaml.safe_load(
        Path(find_share_path("config/ant.yaml")).read_text(encoding="utf-8")
    )
    actuators = wiring["command"]["actuators"]
    names = list(actuators)
    for kind in ("position", "velocity"):
        for name, other in zip(names, rng.permutation(names).tolist(), strict=True):
            channel = wiring["channels"][f"{name}.{kind}"]
            channel["field"] = f"{kind}[{other}]"
            channel["scale"] *= float(rng.choice([-1.0, 1.0]))
    for name, other in zip(names, rng.permutation(names).tolist(), strict=True):
        actuators[name]["field"] = f"effort[{other}]"
        actuators[name]["scale"] *= float(rng.choice([-1.0, 1.0]))
    return wiring


def compute_true_motor_sensor_signs(wiring: dict[str, Any]) -> dict[tuple[str, str], int]:
    """Return the right answers of a trial: which motor moves which sensor, in which direction.

    They follow from `wiring`, the wrong wiring of `make_scrambled_wiring`.

    Returns:
        For each pair (actuator, channel) 1 if the reading rises with the action, else -1.
    """
    drives = {
        one["field"].partition("[")[2]: (name, np.sign(one["scale"]))
        for name, one in wiring["command"]["actuators"].items()
    }
    pairs = {}
    for id_, channel in wiring["channels"].items():
        kind, _, element = channel["field"].partition("[")
        if kind in ("position", "velocity"):
            name, sign = drives[element]
            pairs[name, id_] = int(sign * np.sign(channel["scale"]))
    return pairs


def add_noise_and_delay(
    recording: MotionRecording, noise: float, delay: int, seed: int
) -> MotionRecording:
    """Return a copy of a recording in which the readings come later and have noise.

    `delay` is a number of control steps, `noise` the standard deviation.
    """
    readings = recording.readings
    late = np.concatenate([np.repeat(readings[:1], delay, axis=0), readings])[: len(readings)]
    noisy = late + np.random.default_rng(seed).normal(0.0, 1.0, late.shape) * noise
    return replace(recording, readings=noisy)


def run_motion_trial(pose: str, seed: int) -> list[dict[str, Any]]:
    """Move the motors of an Ant with a wrong wiring, and count what the recording reveals.

    `pose` is the Ant's pose, "hanging" or "on_back".

    Returns:
        For each disturbance that is added to the recording, the counts of
        `count_correct_motor_sensor_pairs` and facts about the motion, by name.
    """
    content = make_scrambled_wiring(np.random.default_rng(seed))
    simulation = yaml.safe_load(
        Path(find_share_path("config/ant_sim.yaml")).read_text(encoding="utf-8")
    )
    simulation["options"] = {"pose": pose}
    begin_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "wiring.yaml"), Path(folder, "sim.yaml")
        for file, what in zip(files, (content, simulation), strict=True):
            file.write_text(yaml.safe_dump(what, sort_keys=False), encoding="utf-8")
        wiring = load_wiring(files[0])
        run = MotionRun(wiring, MotionSettings(amplitude=POSES[pose]))
        seconds = play_and_time_test_motion(run, files[1], seed)
    wall_s = round(time.perf_counter() - begin_s, 2)
    whole = run.make_recording()
    common = {"pose": pose, "seed": seed, "stopped": run.stopped}
    common |= {"simulated_s": round(seconds, 2), "wall_s": wall_s}
    limits = np.array([one.limits for one in wiring.command.actuators])
    inside = (whole.commands >= limits[:, 0]) & (whole.commands <= limits[:, 1])
    common |= {"within_limits": bool(inside.all())}
    common |= {"largest_command": float(np.abs(whole.commands).max())}
    return [
        common
        | {"disturbance": name}
        | count_correct_motor_sensor_pairs(
            content, add_noise_and_delay(whole, *strength, seed), wiring.command
        )
        for name, strength in DISTURBANCES.items()
    ]


def count_correct_motor_sensor_pairs(
    content: dict[str, Any], recording: MotionRecording, command: CommandConfig
) -> dict[str, int]:
    """Count how many motors, sensors and signs are found rightly from the recording of a motion.

    The recorded robot has a wrong wiring. `content` is what that wiring's YAML file contains; the
    true pairs are computed from it. The counts are named "motors", "sensors", "signs",
    "wrong_signs" and "wrong_pairs".
    """
    diagnosis = diagnose_wiring_by_motion(recording, command)
    true = compute_true_motor_sensor_signs(content)
    found = {
        (recording.actuators[one.actuator], recording.ids[one.channel]): int(
            one.sign * np.sign(command.actuators[one.actuator].scale)
        )
        for one in diagnosis.pairs
    }
    pairs = [pair for pair in true if pair in found]
    positions = {name for name, id_ in pairs if id_.endswith("position")}
    return {
        "motors": len(positions & {name for name, id_ in pairs if id_.endswith("velocity")}),
        "sensors": len(pairs),
        "signs": sum(found[pair] == true[pair] for pair in pairs),
        "wrong_signs": sum(found[pair] == -true[pair] for pair in pairs),
        "wrong_pairs": len([pair for pair in found if pair not in true]),
    }


def is_trial_successful(trial: dict[str, Any]) -> bool:
    """Return whether a trial found all motors, sensors and signs, in time and within the limits."""
    return bool(
        (trial["motors"], trial["sensors"], trial["signs"], trial["wrong_pairs"]) == (8, 16, 16, 0)
        and trial["simulated_s"] <= MAX_SECONDS
        and trial["within_limits"]
        and not trial["stopped"]
    )


def main(arguments: list[str] | None = None) -> int:
    """Test whether a motion reveals which motor moves which joint of an Ant; print a table."""
    parser = argparse.ArgumentParser(prog="python -m experiments motion_test", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=HERE / "results.json")
    options = parser.parse_args(arguments)
    trials: list[dict[str, Any]] = []
    for pose in POSES:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            trials += run_motion_trial(pose, seed)
            print(json.dumps(trials[-len(DISTURBANCES)]), flush=True)
    write_file(options.json, json.dumps(trials, indent=1) + "\n")
    print(make_markdown_results_table(trials))
    return 0


def make_markdown_results_table(trials: list[dict[str, Any]]) -> str:
    """Return a Markdown table of the outcomes, with a row for each pose and disturbance."""
    rows = [
        "| pose | readings | all found | motors | sensors | signs | wrong pairs | wrong signs |"
    ]
    rows.append("|---" * 8 + "|")
    for pose in POSES:
        for name in DISTURBANCES:
            mine = [one for one in trials if (one["pose"], one["disturbance"]) == (pose, name)]
            sums = [
                sum(one[key] for one in mine)
                for key in ("motors", "sensors", "signs", "wrong_pairs", "wrong_signs")
            ]
            whole, n = sum(map(is_trial_successful, mine)), len(mine)
            of = [f"{sums[0]} of {8 * n}", f"{sums[1]} of {16 * n}", f"{sums[2]} of {16 * n}"]
            cells = [pose, name, f"{whole} of {n}", *of, str(sums[3]), str(sums[4])]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    raise SystemExit(main())
