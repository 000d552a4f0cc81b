"""The campaign file: which faults, what the wire must show, and how soon."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from an_control.wiring.strict import Entry, read_yaml

WIRES = ("safe", "acts", "silent", "ends")
_TEXT = re.compile(r".{1,200}")
_KEYS = ("fault", "wire", "within_s", "recovered_s")


@dataclass(frozen=True)
class Fault:
    """One fault of the campaign.

    kind         what is done: a name of `an_control_sim.campaign.faults.FAULTS`
    wire         what the commands must be while it lasts: safe, acts, silent or ends
    within_s     how soon the wire must be so; with acts, the greatest time between two commands
    recovered_s  how soon after its end the policy must act again
    lasts_s      how long it lasts
    options      what else the kind takes
    """

    name: str
    kind: str
    wire: str
    within_s: float
    recovered_s: float
    lasts_s: float
    options: dict[str, Any] = field(default_factory=dict)


def load_plan(path: str | Path) -> tuple[Fault, ...]:
    """Read a campaign file; WiringError names file, key, value and what is allowed."""
    top = read_yaml(path).fields(("an_control_campaign", "lasts_s", "faults"))
    if top["an_control_campaign"].number("1, the version of the format") != 1:
        raise top["an_control_campaign"].error("1, the version of the format")
    lasts_s = top["lasts_s"].number("seconds", 0.1, 600.0)
    faults = top["faults"].items("at least one fault")
    return tuple(_fault(name, entry, lasts_s) for name, entry in faults)


def _fault(name: str, entry: Entry, lasts_s: float) -> Fault:
    found = dict(entry.items("a mapping"))
    options = {key: found[key].value for key in found if key not in (*_KEYS, "lasts_s")}
    fields = entry.fields(_KEYS, ("lasts_s", *options))
    wire = fields["wire"]
    if wire.value not in WIRES:
        raise wire.error(" or ".join(WIRES))
    return Fault(
        name=name,
        kind=fields["fault"].text("a kind of fault", _TEXT),
        wire=str(wire.value),
        within_s=fields["within_s"].number("seconds", 0.0, 600.0),
        recovered_s=fields["recovered_s"].number("seconds", 0.0, 600.0),
        lasts_s=fields["lasts_s"].number("seconds", 0.1, 600.0) if "lasts_s" in fields else lasts_s,
        options=options,
    )
