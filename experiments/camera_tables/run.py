"""Write the tables and pictures of report.md in this folder.

    python -m experiments camera_tables [--only TITLE ...] [--smoke]

If the experiment was stopped, the same command evaluates only for the missing rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.page_tables import PageTable, write_tables
from experiments.reality.run import CAMERA as REALITY
from experiments.steps import ExperimentStep

RUNS = Path("runs/camera_tables")
BACKGROUNDS = (
    "reset",
    *(f"reset,background={scene}" for scene in ("marble", "waves", "city", "mountain")),
)
MISSING_PATCHES = ("reset", *(f"reset,missing={tenth / 10}" for tenth in range(1, 10)))
RESHUFFLED = ("reset", "500", "200", "100", "50", "25")
PAGE = "experiments/camera_tables/report.md"
TABLES = (
    PageTable("car_racing", PAGE, "car_racing backgrounds", BACKGROUNDS),
    PageTable("car_racing", PAGE, "car_racing reshuffled", RESHUFFLED, episodes=4),
    PageTable("pong", PAGE, "pong missing", MISSING_PATCHES, episodes=20, seed=2),
    PageTable("car_racing", PAGE, "car_racing in reality", REALITY, episodes=20),
    PageTable("pong", PAGE, "pong in reality", REALITY, episodes=20, seed=2),
    PageTable("pong", PAGE, "pong reshuffled", RESHUFFLED, episodes=3, seed=2),
)
OTHERS = (
    ExperimentStep(
        "experiments/camera_tables/pictures",
        "an-control evaluate models/pong.safetensors --episodes 1 --seed 2 --table reset"
        " --plots experiments/camera_tables/pictures",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the missing tables about CarRacing and Pong in report.md; return the exit status."""
    return write_tables(__doc__, RUNS, TABLES, OTHERS, arguments)
