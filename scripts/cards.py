"""Write facts from each model file into its model card: task, channels, rate, number of weights.

    python scripts/cards.py

A test checks that the cards agree with the model files.
"""

from __future__ import annotations

from pathlib import Path

from an_control.policy import read_model

MODELS = Path(__file__).resolve().parent.parent / "models"
BEGIN, END = "<!-- facts -->\n", "<!-- end of facts -->"
MONITOR = ("forward.", "identity.", "imputation.")
"""Prefixes of the names of a monitor's arrays in a model file."""


def format_model_facts(path: Path) -> str:
    """Return a line of text with facts about a model, such as its task and number of channels.

    Args:
        path: Path of the model file.
    """
    model = read_model(path)
    task = model.task
    of_monitor = sum(array.size for name, array in model.arrays.items() if name.startswith(MONITOR))
    monitor = f"monitor `{model.forward.monitor}`" if model.forward else "no monitor"
    return (
        f"`{task.environment or task.name}`: {len(task.channels)} channels,"
        f" {len(task.actuators)} actuators, {1 / task.step_s:.3g} ticks/s."
        f" `{model.kind}` of {model.parameter_count - of_monitor:,} numbers, {monitor}.\n"
    )


def format_updated_card(path: Path) -> str:
    """Return the text of a model's card (the page about it) with its line of facts updated.

    Args:
        path: Path of the model file; the card lies beside it with the suffix .md.

    Raises:
        SystemExit: The card lacks the two marks around the line of facts.
    """
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{path.with_suffix('.md')}: needs the lines {BEGIN.strip()} and {END}")
    return before + begin + format_model_facts(path) + end + after


if __name__ == "__main__":
    for one in sorted(MODELS.glob("*.safetensors")):
        one.with_suffix(".md").write_text(format_updated_card(one), encoding="utf-8")
