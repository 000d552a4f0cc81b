"""Measure what recording costs, whether a replay repeats every command, and what can be learned.

python -m experiments recordings troubled FOLDER [--pieces 10] [--ticks 100000] [--json FILE]
python -m experiments recordings learned [--list] [--again]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.steps import add_step_options

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test"))
os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one part of the experiment about recordings, such as "costs"; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    troubled = parts.add_parser("troubled", help="record a troubled robot in pieces; replay each")
    troubled.add_argument("folder", type=Path, help="for the recording of a piece; is deleted")
    troubled.add_argument("--pieces", type=int, default=10)
    troubled.add_argument("--ticks", type=int, default=100_000, help="of a piece")
    troubled.add_argument("--seed", type=int, default=0, help="of the first piece")
    troubled.add_argument("--json", type=Path, default=Path("runs/recordings/troubled.json"))
    costs = parts.add_parser("costs", help="CPU time of a recording and of the black box")
    costs.add_argument("--blocks", type=int, default=60, help="seconds that each node has its turn")
    costs.add_argument("--json", type=Path)
    memory = parts.add_parser("memory", help="memory of the black box after 30 s of the Ant")
    memory.add_argument("--json", type=Path)
    drive = parts.add_parser("drive", help="record episodes of the Ant, to learn from")
    drive.add_argument("folder", type=Path, help="the bag to make; is replaced")
    drive.add_argument("--model", type=Path, required=True)
    drive.add_argument("--episodes", type=int, required=True)
    drive.add_argument("--seed", type=int, default=0, help="of the first episode")
    drive.add_argument("--push", type=float, default=0.0, help="largest noise on the actions")
    beginning = parts.add_parser("beginning", help="start a learned policy in an unknown order")
    beginning.add_argument("--model", type=Path, required=True, help="in order, with its monitor")
    beginning.add_argument("--bag", type=Path, required=True, help="of which it was learned")
    beginning.add_argument("--folder", type=Path, required=True, help="is replaced")
    beginning.add_argument("--episodes", type=int, default=100)
    beginning.add_argument("--steps", type=int, default=1000)
    beginning.add_argument("--json", type=Path, required=True)
    learned = parts.add_parser("learned", help="learn from recordings alone, and evaluate")
    add_step_options(learned)
    learned.add_argument("--table", action="store_true", help="only write the finished results")
    options = parser.parse_args(arguments)
    if options.part == "drive":
        from experiments.recordings.driving import record_noisy_ant_episodes

        record_noisy_ant_episodes(
            options.folder, options.model, options.episodes, options.seed, options.push
        )
        return 0
    if options.part == "beginning":
        from experiments.recordings.beginning import measure_order_finding_while_walking

        return measure_order_finding_while_walking(
            options.model,
            options.bag,
            options.folder,
            options.episodes,
            options.json,
            options.steps,
        )
    if options.part == "learned":
        from experiments.recordings.learned import run_learning_steps

        return run_learning_steps(options)
    if options.part != "troubled":
        from experiments.recordings.costs import run_cost_measurements

        blocks = options.blocks if options.part == "costs" else 0
        return run_cost_measurements(blocks, options.json, memory=options.part == "memory")
    from experiments.recordings.troubled import check_replay_under_random_faults

    options.json.parent.mkdir(parents=True, exist_ok=True)
    return check_replay_under_random_faults(
        options.folder, options.pieces, options.ticks, options.json, options.seed
    )
