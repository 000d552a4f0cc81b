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
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from an_control.commissioning.motion.compare import diagnose_motion
from an_control.commissioning.motion.plan import MotionSettings
from an_control.commissioning.motion.run import MotionRun
from an_control.system.files import write_file
from an_control.system.share import find_share_path
from an_control.wiring import load_wiring
from an_control_sim.bridge.motion_run import move_simulated_robot

HERE = Path(__file__).resolve().parent
POSES = {"hanging": MotionSettings().amplitude, "on_back": 0.5}
"""Amplitude of the motion in each pose, as a share of the limits. On its back the Ant's legs lie on
the floor, and friction holds them against less."""
MAX_SECONDS = 30.0


def scramble_wiring(rng: np.random.Generator) -> dict[str, Any]:
    """Return the content of the Ant's wiring YAML with permuted, randomly reversed joints.

    Args:
        rng: The random generator.
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


def list_true_pairs(wiring: dict[str, Any]) -> dict[tuple[str, str], int]:
    """Return the sign of each true pair of (actuator, channel), from its action to its reading.

    Args:
        wiring: The content of a scrambled wiring.
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


def run_trial(pose: str, seed: int) -> dict[str, Any]:
    """Move the motors of a scrambled Ant, and return how much was found.

    Args:
        pose: "hanging" or "on_back".
        seed: Seed of the scrambled wiring and of the Ant's posture.
    """
    content = scramble_wiring(np.random.default_rng(seed))
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
        seconds = move_simulated_robot(run, files[1], seed)
    recording = run.make_recording()
    diagnosis = diagnose_motion(recording, wiring.command)
    true = list_true_pairs(content)
    scales = [one.scale for one in wiring.command.actuators]
    found = {
        (recording.actuators[one.actuator], recording.ids[one.channel]): int(
            one.sign * np.sign(scales[one.actuator])
        )
        for one in diagnosis.pairs
    }
    limits = np.array([one.limits for one in wiring.command.actuators])
    inside = (recording.commands >= limits[:, 0]) & (recording.commands <= limits[:, 1])
    pairs = [pair for pair in true if pair in found]
    return {
        "pose": pose,
        "seed": seed,
        "stopped": run.stopped,
        "simulated_s": round(seconds, 2),
        "wall_s": round(time.perf_counter() - begin_s, 2),
        "motors": len({name for name, id_ in pairs if id_.endswith("position")}),
        "sensors": len(pairs),
        "signs": sum(found[pair] == true[pair] for pair in pairs),
        "wrong_pairs": len([pair for pair in found if pair not in true]),
        "largest_command": float(np.abs(recording.commands).max()),
        "within_limits": bool(inside.all()),
        "findings": len(diagnosis.findings),
    }


def is_complete(trial: dict[str, Any]) -> bool:
    """Return whether a trial found everything, in time and within the limits."""
    return bool(
        (trial["motors"], trial["sensors"], trial["signs"], trial["wrong_pairs"]) == (8, 16, 16, 0)
        and trial["simulated_s"] <= MAX_SECONDS
        and trial["within_limits"]
        and not trial["stopped"]
    )


def main(arguments: list[str] | None = None) -> int:
    """Run all trials, print them, and write them to a file; return the exit status.

    Args:
        arguments: The command line; None: that of this process.
    """
    parser = argparse.ArgumentParser(prog="python -m experiments motion_test", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=HERE / "results.json")
    options = parser.parse_args(arguments)
    trials = []
    for pose in POSES:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            trial = run_trial(pose, seed)
            trials.append(trial)
            print(json.dumps(trial), flush=True)
        mine = [one for one in trials if one["pose"] == pose]
        print(f"{pose}: all found in {sum(map(is_complete, mine))} of {len(mine)}")
    write_file(options.json, json.dumps(trials, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
