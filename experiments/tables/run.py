"""Write the tables and pictures of report.md in this folder and of ant_policy/report.md.

    python -m experiments tables [--only TITLE ...] [--smoke]

If the experiment was stopped, the same command evaluates only for the missing rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.page_tables import PageTable, write_tables
from experiments.reality.run import ANT as REALITY
from experiments.steps import ExperimentStep

RUNS = Path("runs/tables")
PAGE = "experiments/tables/report.md"
PICTURES = "experiments/tables/rewiring"
SHARES = (0.1, 0.2, 0.25, 0.3, 0.4, 0.5)
"""Shares of the channels that are missing."""
MISSING = (
    "none",
    *(f"none,missing={share}" for share in SHARES),
    *(f"none,missing={share},monitor=off" for share in SHARES),
)
MOVED_AND_MISSING = (
    *("none", "reset,missing=0.1", "reset,missing=0.25", "100,missing=0.1", "25,missing=0.1"),
    *("100,missing=0.25", "reset+100,missing=0.1", "reset+25,missing=0.1"),
    "reset+100,missing=0.25",
)
MOVED = ("none", "100", "25", "25,until=500", "reset+100")
NOISY = (
    *("none", "10", "5", "25,swap=2", "100,swap=2", "25,swap=4", "none,jitter=0.02"),
    *("25,jitter=0.02", "100,jitter=0.02", "none,jitter=0.05", "25,jitter=0.05"),
)
MOVED_CARTPOLE = (
    *("none,monitor=off", "none", "100", "25", "reset", "reset+100", "reset+25", "25,monitor=off"),
)
REWIRED = (
    *("none", "1,announced", "reset", "500", "200", "100", "50", "25", "1", "100,reset"),
    *("50,reset", "none,zeroed"),
)
DISTURBED = (
    *("reset", "reset,noise=5,noise-sd=1", "reset,noise=10,noise-sd=1", "reset,copies=7"),
    "reset,copies=28",
    *(f"reset,missing={share}" for share in (0.05, 0.1, 0.2, 0.3, 0.5)),
)
STARTS = (
    *("reset", "stop=2", "start=rest", "start=posture", "reset,stop=2", "reset,start=rest"),
    "reset,start=posture",
)
TABLES = (
    PageTable("ant", PAGE, "ant moved", MOVED),
    PageTable("ant", PAGE, "ant moved and noisy", NOISY, episodes=20),
    PageTable("ant", PAGE, "ant missing", MISSING, episodes=40, plots=f"{PICTURES}/ant_missing"),
    PageTable("ant", PAGE, "ant moved and missing", MOVED_AND_MISSING, episodes=40),
    PageTable("ant", PAGE, "ant in reality", REALITY),
    PageTable("ant", PAGE, "ant stops and starts", STARTS, options="--success 2847"),
    PageTable("cartpole", PAGE, "cartpole moved", MOVED_CARTPOLE),
    PageTable("ant_quick", PAGE, "ant rewired", REWIRED, options="--monitor off"),
    PageTable("ant_quick", PAGE, "ant disturbed", DISTURBED, options="--monitor off"),
)
OTHERS = (
    ExperimentStep(
        "experiments/tables/rewiring/ant",
        "an-control evaluate models/ant_quick.safetensors --monitor off --episodes 100"
        " --table none 100 100,announced --plots experiments/tables/rewiring/ant",
    ),
    ExperimentStep(
        "experiments/tables/rewiring/ant_monitored",
        "an-control evaluate models/ant.safetensors --episodes 1 --table none 100"
        " --plots experiments/tables/rewiring/ant_monitored",
    ),
    ExperimentStep(
        "experiments/ant_policy/report.md",
        "an-control evaluate models/ant.safetensors --identification --episodes 10 --seed 1"
        " --markdown experiments/ant_policy/report.md --plots experiments/ant_policy/pictures",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the missing tables about the Ant and CartPole in report.md; return the exit status."""
    return write_tables(__doc__, RUNS, TABLES, OTHERS, arguments)
