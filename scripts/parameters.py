"""Writes the table of the node's parameters into the page that explains them.

    python scripts/parameters.py

The table is made from `an_control.ros.settings`; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path

from an_control.ros.settings import PARAMETERS, USE_SIM_TIME, Parameter

PAGE = Path(__file__).resolve().parent.parent / "docs/own_robot.md"
BEGIN, END = "<!-- parameters -->\n", "<!-- end of parameters -->"
WHEN = {
    "start": "at the start",
    "unconfigured": "until configured",
    "always": "at any time",
}


def table() -> str:
    """Return the parameters as a markdown table."""
    lines = ["| parameter | default | can be set | |", "|---|---|---|---|"]
    for one in (*PARAMETERS.values(), USE_SIM_TIME):
        lines.append(f"| `{one.name}` | {_default(one)} | {WHEN[one.when]} | {one.description} |")
    for names, text in (
        ("`sources.NAME.topic`", "the topic of a source: announced rewiring"),
        ("`channels.ID.source`, `channels.ID.field`", "where a channel comes from: the same"),
    ):
        lines.append(f"| {names} | the wiring's | at any time | {text} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with the present table."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE}: needs the lines {BEGIN.strip()} and {END}")
    return before + begin + table() + end + after


def _default(one: Parameter) -> str:
    """Return a parameter's default as markdown."""
    if one.default == "":
        return ""
    text = str(one.default).lower() if isinstance(one.default, bool) else one.default
    return f"`{text:g}`" if isinstance(text, float) else f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
