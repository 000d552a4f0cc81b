"""Measure how many deliberate mistakes the wiring doctor finds.

    python -m experiments doctor table|random|robots [--seeds N] [--trials N] [--json FILE]

The doctor looks for mistakes in a wiring, the file that connects a robot to a policy. A trial runs
a robot with mistakes for 10 s of simulated time, and gives the recording to the doctor. Finished
trials are kept in the results file, so an experiment that was stopped continues; the README reports
the results.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from an_control.commissioning.doctor import CandidateWiring, Diagnosis, Recording, diagnose
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol
from an_control.system.files import write_file
from experiments.doctor.mistakes import MODELS, Mistake, Robot

HERE = Path(__file__).resolve().parent
CONFIG = MODELS.parent / "config"
SECONDS = (2.5, 5.0, 10.0)
"""Lengths of a recording in seconds; the shortest in which a mistake is found counts as the time to
find it."""
ROBOTS = {
    "ant": (MODELS / "ant.safetensors", CONFIG / "ant.yaml"),
    "base": (MODELS / "mobile_base.safetensors", CONFIG / "mobile_base.yaml"),
    "cheetah": (Path("cheetah_full.safetensors"), None),
    "hopper": (Path("hopper_full.safetensors"), None),
}
"""Model and wiring of each robot; models that are not shipped are sought in `--models`."""
LEGS = range(1, 5)
POSITIONS = tuple(f"{joint}_{leg}.position" for leg in LEGS for joint in ("hip", "ankle"))
VELOCITIES = tuple(f"{joint}_{leg}.velocity" for leg in LEGS for joint in ("hip", "ankle"))
ROTATED = tuple(
    f"{joint}_{leg % 4 + 1}.{kind}"
    for kind in ("position", "velocity")
    for leg in LEGS
    for joint in ("hip", "ankle")
)
DEAD_LEG = (Mistake("motor dead", ("hip_1",)), Mistake("motor dead", ("ankle_1",)))
STUCK_LEG = tuple(
    Mistake("stuck", (f"{joint}_1.{kind}",))
    for joint in ("hip", "ankle")
    for kind in ("position", "velocity")
)
TABLE: dict[str, tuple[Mistake, ...]] = {
    "sign of hip_1.position": (Mistake("sign", ("hip_1.position",)),),
    "sign of its position and velocity": (Mistake("sign", ("hip_1.position", "hip_1.velocity")),),
    "sign of roll": (Mistake("sign", ("roll",)),),
    "all positions in degrees": (Mistake("scale", POSITIONS, 180.0 / np.pi),),
    "all velocities x 10": (Mistake("scale", VELOCITIES, 10.0),),
    "ankle_1's offset left out": (Mistake("offset", ("ankle_1.position",), 1.8571429),),
    "joints rotated by one leg": (Mistake("permuted", POSITIONS + VELOCITIES, 0.0, ROTATED),),
    "roll and pitch swapped": (Mistake("swapped", ("roll", "pitch"), 0.0, ("pitch", "roll")),),
    "roll and pitch off by 0.05": tuple(
        Mistake("offset", (one,), 0.05) for one in ("roll", "pitch")
    ),
    "motor ankle_2 reversed": (Mistake("motor reversed", ("ankle_2",), -1.0),),
    "motor hip_1 dead": (Mistake("motor dead", ("hip_1",)),),
    "a leg's two motors dead": DEAD_LEG,
    "a leg gone, sensors and motors": DEAD_LEG + STUCK_LEG,
}
SECTORS = tuple(f"scan.{side}.{number}" for side in ("right", "left") for number in range(6))
BASE_TABLE: dict[str, tuple[Mistake, ...]] = {
    "base: sign of the gyro (NED)": (Mistake("sign", ("gyro",)),),
    "base: gyro in degrees": (Mistake("scale", ("gyro",), 180.0 / np.pi),),
    "base: steering reversed": (Mistake("motor reversed", ("turn",), -1.0),),
    "base: both wheels reversed": (Mistake("motor reversed", ("forward", "turn"), -1.0),),
    "base: ranges in millimetres": (Mistake("scale", SECTORS, 1000.0),),
}
"""Mistakes of the mobile base by the names of their rows; `TABLE` has those of the Ant."""
OTHERS = ("none", "delay=1", "jitter=0.02", "missing=0.1", "mass=1.3", "friction=0.5", "lag=0.3")
"""Disturbances of robots whose wiring is right."""
SCALES = (180.0 / np.pi, np.pi / 180.0, 1000.0, 0.001, 10.0, 0.1, 2.0, 0.5)
KINDS = (
    *("sign", "sign", "scale", "scale", "offset", "delay", "stuck", "noise only", "swapped"),
    *("swapped", "motor reversed", "motor gain", "motor dead", "motors swapped"),
)
"""Kinds of random mistakes; a kind that is listed twice is drawn twice as often."""


def draw_random_wiring_mistake(robot: Robot, clean: Recording, rng: np.random.Generator) -> Mistake:
    """Draw a random mistake in the wiring of a robot.

    `clean` is a recording without mistakes, which shows the usual size of the readings.
    """
    spread = np.nanstd(clean.raw, axis=0) * np.abs(clean.scale)
    kind = str(rng.choice(KINDS))
    if kind.startswith("motor"):
        name, other = map(str, rng.choice(robot.actuators, 2, replace=False))
        if kind == "motors swapped":
            return Mistake(kind, (name, other), 0.0, (other, name))
        value = {"motor reversed": -1.0, "motor dead": 0.0}.get(
            kind, float(rng.choice([0.25, 3.0]))
        )
        return Mistake(kind, (name,), value)
    place, second = map(int, rng.choice(len(robot.ids), 2, replace=False))
    names = robot.ids[place], robot.ids[second]
    if kind == "swapped":
        return Mistake(kind, names, 0.0, names[::-1])
    size = float(max(spread[place], 0.02))
    value = {
        "scale": float(rng.choice(SCALES)),
        "offset": size * float(rng.choice([-3.0, -1.5, 1.5, 3.0])),
        "delay": float(rng.integers(1, 4)),
        "noise only": size,
    }.get(kind, 0.0)
    return Mistake(kind, names[:1], value)


def make_expected_wiring(recording: Recording, mistakes: Sequence[Mistake]) -> CandidateWiring:
    """Return the correct diagnosis: the wiring that undoes the given mistakes."""
    candidate = CandidateWiring.from_recording(recording)
    for one in mistakes:
        of = recording.actuators if one.kind.startswith("motor") else recording.ids
        members = [of.index(name) for name in one.members]
        others = [of.index(name) for name in one.others]
        if one.kind == "motors swapped":
            candidate = candidate.with_permuted_motors(members, others)
        elif one.kind.startswith("motor"):
            candidate = candidate.with_motor_gain(members, one.value)
        elif one.kind == "sign":
            candidate = candidate.with_scale_factor(members, -1.0)
        elif one.kind == "scale":
            candidate = candidate.with_scale_factor(members, 1.0 / one.value)
        elif one.kind == "offset":
            candidate = candidate.with_offset(members[0], candidate.offset[members[0]] - one.value)
        elif one.kind == "delay":
            candidate = candidate.with_delay(members[0], int(one.value))
        elif one.kind in ("stuck", "noise only"):
            candidate = candidate.with_unusable_channel(members[0])
        else:
            slots = candidate.slots.copy()
            slots[others] = members
            candidate = replace(candidate, slots=slots)
    return candidate


def is_diagnosed_wiring_right(
    diagnosed: CandidateWiring, expected: CandidateWiring, recording: Recording
) -> bool:
    """Return whether the wiring that the doctor found is nearly equal to the correct one.

    Scales may differ by 10 %, offsets by half a standard deviation of the readings, and motor gains
    by 40 %.
    """
    for name in ("slots", "delay", "unusable", "motors"):
        if (getattr(diagnosed, name) != getattr(expected, name)).any():
            return False
    usable = ~expected.unusable
    ratio = (diagnosed.scale / expected.scale)[usable]
    signals = recording.raw[:, expected.slots] * expected.scale
    spread = np.maximum(np.nan_to_num(np.nanstd(signals, axis=0)), 0.01)
    shift = (np.abs(diagnosed.offset - expected.offset) / spread)[usable]
    dead = expected.gain == 0.0
    motors = np.where(
        dead,
        np.abs(diagnosed.gain) < 0.1,
        np.abs(diagnosed.gain / np.where(dead, 1.0, expected.gain) - 1.0) < 0.4,
    )
    return bool((np.abs(ratio - 1.0) < 0.1).all() and (shift < 0.5).all() and motors.all())


def grade_diagnosis(diagnosis: Diagnosis, recording: Recording, mistakes: Sequence[Mistake]) -> str:
    """Return a word that grades the doctor's diagnosis of a recording whose mistakes are known.

    Args:
        diagnosis: The result of the doctor.
        recording: The recording that it examined.
        mistakes: The mistakes in the recording.

    Returns:
        "found" if the corrected wiring is right, or "ambiguous" if the doctor also names another.
        "partly" if one of several mistakes was found. "wrong" if the doctor reports other mistakes.
        If it reports none: "unseen" if it says that the recording cannot show such a mistake,
        "said" if it makes a remark, else "missed".
    """
    right = make_expected_wiring(recording, mistakes)
    if is_diagnosed_wiring_right(diagnosis.corrected, right, recording):
        return "ambiguous" if diagnosis.alternatives else "found"
    if find_only_diagnosed_mistake(diagnosis, recording, mistakes) is not None:
        return "partly"
    if diagnosis.findings:
        return "wrong"
    unseen = {(one.kind, frozenset(one.members)) for one in diagnosis.unseen}
    if any((one.kind, frozenset(one.members)) in unseen for one in mistakes):
        return "unseen"
    return "said" if diagnosis.notes else "missed"


def find_only_diagnosed_mistake(
    diagnosis: Diagnosis, recording: Recording, mistakes: Sequence[Mistake]
) -> Mistake | None:
    """Return that one of some mistakes which the doctor corrected while it missed all others.

    `mistakes` are all mistakes in the recording. Return None if there is no such mistake: the
    corrected wiring is then not nearly right for any one of them alone.
    """
    for one in mistakes:
        right = make_expected_wiring(recording, [one])
        if is_diagnosed_wiring_right(diagnosis.corrected, right, recording):
            return one
    return None


def cut_recording_to_start(recording: Recording, ticks: int) -> Recording:
    """Return a copy of a recording with only its first `ticks` control steps."""
    return replace(
        recording,
        raw=recording.raw[:ticks],
        actions=recording.actions[:ticks],
        starts=recording.starts[:ticks],
    )


def run_mistake_trial(
    robot: Robot, mistakes: Sequence[Mistake], seed: int, *, returns: bool, checks: int = 1
) -> dict[str, Any]:
    """Run a robot with mistakes in its wiring, let the doctor examine it, and return the results.

    The result "outcome" is a word of `grade_diagnosis`. If only one of several mistakes was found,
    it is repaired, and the robot runs again and is examined again, up to `checks` times in all; the
    outcome is then a list such as "partly, found". If `returns` is true, four more results are
    measured: the seconds until the mistakes are found, and the sum of rewards with the mistakes,
    after their repair, and without mistakes.
    """
    whole = SECONDS[-1]
    recording, _ = robot.record_run_and_mean_return(
        mistakes, seed=seed, ticks=round(whole / robot.step_s)
    )
    row: dict[str, Any] = {"seed": seed, "outcome": "missed", "after_s": None}
    begin_s = time.process_time()
    for seconds in SECONDS if returns else SECONDS[-1:]:
        part = cut_recording_to_start(recording, round(seconds / robot.step_s))
        diagnosis = diagnose(part, robot.forward)
        row["outcome"] = grade_diagnosis(diagnosis, part, mistakes)
        if row["outcome"] == "found":
            row["after_s"] = seconds
            break
    row["cpu_s"] = round(time.process_time() - begin_s, 2)
    row["findings"] = [f"{', '.join(one.members)}: {one.text}" for one in diagnosis.findings]
    found = find_only_diagnosed_mistake(diagnosis, part, mistakes)
    if row["outcome"] == "partly" and checks > 1:
        left = [one for one in mistakes if one != found]
        again = run_mistake_trial(robot, left, seed + 1, returns=False, checks=checks - 1)
        row["outcome"] += f", {again['outcome']}"
        row["findings"] += again["findings"]
    if returns:
        fixed = diagnosis.corrected
        row["return"] = robot.record_run_and_mean_return(mistakes, seed=seed)[1]
        row["return_fixed"] = robot.record_run_and_mean_return(mistakes, seed=seed, repaired=fixed)[
            1
        ]
        row["return_right"] = robot.record_run_and_mean_return((), seed=seed)[1]
    return row


def iterate_named_trials(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Yield a pair for each trial that the command line selects: its name, and how to run it.

    In a trial the doctor examines a simulated robot whose wiring has mistakes or is right. The
    second of the pair is a function without arguments, which runs the trial and returns its results
    as a dict. The name, such as "robots/ant/mass=1.3/0", is the key of these results in the JSON
    file; it ends with the seed or the number of the trial.
    """
    robots: dict[str, Robot] = {}

    def get_robot(name: str) -> Robot:
        """Return the robot with this name, which is loaded at its first use."""
        if name not in robots:
            model, wiring = ROBOTS[name]
            file = model if model.is_absolute() else options.models / model
            robots[name] = Robot(file, wiring)
        return robots[name]

    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if "table" in options.studies:
        for seed in seeds:
            for name, mistakes in {**TABLE, **BASE_TABLE}.items():
                robot = "base" if name in BASE_TABLE else "ant"
                if robot in options.robots and (
                    not options.rows or any(word in name for word in options.rows)
                ):
                    yield (
                        f"table/{name}/{seed}",
                        lambda r=robot, m=mistakes, s=seed: run_mistake_trial(
                            get_robot(r), m, s, returns=s in seeds[: options.returns]
                        ),
                    )
    if "robots" in options.studies:
        for seed in seeds:
            for name in options.robots:
                for word in options.others:
                    if name == "base" and word.startswith(("mass", "friction")):
                        continue
                    yield (
                        f"robots/{name}/{word}/{seed}",
                        lambda n=name, w=word, s=seed: run_trial_without_mistakes(
                            get_robot(n), w, s, options.seconds
                        ),
                    )
    if "random" in options.studies:
        for number in range(options.first_trial, options.first_trial + options.trials):
            for name in options.robots:
                yield (
                    f"random/{name}/{options.mistakes}/{number}",
                    lambda n=name, k=number: run_trial_with_random_mistakes(
                        get_robot(n), k, options.mistakes, options.checks
                    ),
                )


def run_trial_without_mistakes(
    robot: Robot, disturbance: str, seed: int, seconds: float
) -> dict[str, Any]:
    """Run a robot whose wiring is right, and return the mistakes that the doctor wrongly reports.

    The robot runs for `seconds` of simulated time. `disturbance` is what is done to it on purpose,
    such as "mass=1.3"; "none" for nothing.
    """
    settings = EvaluationProtocol.parse(
        f"none,{disturbance}" if disturbance != "none" else disturbance
    ).disturbance
    ticks = round(seconds / robot.step_s)
    recording, _ = robot.record_run_and_mean_return(seed=seed, ticks=ticks, disturbance=settings)
    diagnosis = diagnose(recording, robot.forward)
    findings = [f"{', '.join(one.members)}: {one.text}" for one in diagnosis.findings]
    return {"outcome": "false" if findings else "nothing", "ticks": ticks, "findings": findings}


def run_trial_with_random_mistakes(
    robot: Robot, trial_number: int, mistake_count: int, checks: int
) -> dict[str, Any]:
    """Run a robot with random mistakes in its wiring; return the results of `run_mistake_trial`.

    `trial_number` is the seed of the mistakes, `mistake_count` their number. After each finding
    that leaves a mistake, the robot is repaired and examined again, up to `checks` times in all.
    """
    rng = np.random.default_rng([trial_number, mistake_count])
    clean = getattr(robot, "clean", None)
    if clean is None:
        clean, _ = robot.record_run_and_mean_return(
            seed=1000, ticks=round(SECONDS[-1] / robot.step_s)
        )
        robot.clean = clean  # type: ignore[attr-defined]
    mistakes: list[Mistake] = []
    while len(mistakes) < mistake_count:
        one = draw_random_wiring_mistake(robot, clean, rng)
        if not {name for other in mistakes for name in other.members} & set(one.members):
            mistakes.append(one)
    row = run_mistake_trial(robot, mistakes, 2000 + trial_number, returns=False, checks=checks)
    row["mistakes"] = [f"{one.kind} {', '.join(one.members)} {one.value:.4g}" for one in mistakes]
    return row


def make_markdown_results_table(results: Mapping[str, dict[str, Any]]) -> str:
    """Return a Markdown table that counts the outcomes, such as "found", of each kind of trial.

    `results` maps the name of a trial, such as "robots/ant/mass=1.3/0", to its results. Trials
    whose names differ only in the last part, the seed or number, are of one kind.
    """
    counts: dict[str, Counter[str]] = {}
    for name, row in results.items():
        counts.setdefault(name.rsplit("/", 1)[0], Counter())[row["outcome"]] += 1
    lines = ["| trials | number | outcomes |", "|---|---|---|"]
    for name, outcomes in sorted(counts.items()):
        text = ", ".join(f"{count} {what}" for what, count in outcomes.most_common())
        lines.append(f"| {name} | {outcomes.total()} | {text} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Test the wiring doctor on robots with known mistakes, and print a table of the outcomes.

    Trials whose result is in the results file are skipped. The exit status is 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("studies", nargs="+", choices=("table", "random", "robots"))
    parser.add_argument("--first-seed", type=int, default=0, help="of each row and robot")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds of each of them")
    parser.add_argument("--returns", type=int, default=10, help="seeds with returns, too")
    parser.add_argument("--rows", nargs="*", default=(), help="words in the names of rows")
    parser.add_argument("--first-trial", type=int, default=0, help="of the random ones")
    parser.add_argument("--trials", type=int, default=75, help="random trials of each robot")
    parser.add_argument("--mistakes", type=int, default=1, help="at once, of random trials")
    parser.add_argument("--checks", type=int, default=1, help="of a robot, each after a repair")
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    parser.add_argument("--others", nargs="+", default=list(OTHERS), help="of right wirings")
    parser.add_argument("--seconds", type=float, default=10.0, help="of right wirings")
    parser.add_argument("--models", type=Path, default=Path(), help="where other models are")
    parser.add_argument("--json", type=Path, default=HERE / "results.json")
    options = parser.parse_args(arguments)
    results = json.loads(options.json.read_text()) if options.json.exists() else {}
    for name, play in iterate_named_trials(options):
        if name not in results:
            results[name] = play()
            write_file(options.json, json.dumps(results, indent=1) + "\n")
            print(name, json.dumps(results[name]), flush=True)
    print(make_markdown_results_table(results))
    return 0
