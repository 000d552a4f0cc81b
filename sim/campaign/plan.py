"""The campaign file: which faults, what the wire must show, and how soon."""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from an_control.wiring.strict import Entry, read_yaml
from an_control_sim.campaign.faults import FAULTS

WIRES = ("safe", "acts", "silent", "ends")
WALKS_S = 3.0
"""Within so long after a fault's end a robot that is up walks again, at half its speed."""
_KEYS = ("fault", "wire", "within_s", "recovered_s")


@dataclass(frozen=True)
class Fault:
    """One fault of the campaign.

    kind         what is done: a name of `an_control_sim.campaign.faults.FAULTS`
    wire         what the commands must be while it lasts: safe, acts, silent or ends
    within_s     how soon the wire must be so; with acts, the greatest time between two commands
    recovered_s  how soon after its end the policy must act again
    lasts_s      how long it lasts
    walks        share of tries after which the robot must walk again within WALKS_S, of those in
                 which it has not fallen
    options      what else the kind takes
    """

    name: str
    kind: str
    wire: str
    within_s: float
    recovered_s: float
    lasts_s: float
    walks: float
    options: dict[str, Any] = field(default_factory=dict)


def load_plan(path: str | Path) -> tuple[Fault, ...]:
    """Read a campaign file; WiringError names file, key, value and what is allowed."""
    top = read_yaml(path).fields(("an_control_campaign", "lasts_s", "walks", "faults"))
    if top["an_control_campaign"].number("1, the version of the format") != 1:
        raise top["an_control_campaign"].error("1, the version of the format")
    lasts_s = top["lasts_s"].number("seconds", 0.1, 600.0)
    walks = top["walks"].number("a share from 0 to 1", 0.0, 1.0)
    faults = top["faults"].items("at least one fault")
    return tuple(_fault(name, entry, lasts_s, walks) for name, entry in faults)


def _fault(name: str, entry: Entry, lasts_s: float, walks: float) -> Fault:
    kind = dict(entry.items("a mapping")).get("fault")
    taken: list[str] = []
    if kind is not None:
        if kind.value not in FAULTS:
            raise kind.error(" or ".join(FAULTS))
        _, *taken = signature(FAULTS[str(kind.value)]).parameters
    fields = entry.fields(_KEYS, ("lasts_s", "walks", *taken))
    wire = fields["wire"]
    if wire.value not in WIRES:
        raise wire.error(" or ".join(WIRES))
    return Fault(
        name=name,
        kind=str(fields["fault"].value),
        wire=str(wire.value),
        within_s=fields["within_s"].number("seconds", 0.0, 600.0),
        recovered_s=fields["recovered_s"].number("seconds", 0.0, 600.0),
        lasts_s=fields["lasts_s"].number("seconds", 0.1, 600.0) if "lasts_s" in fields else lasts_s,
        walks=fields["walks"].number("a share from 0 to 1", 0.0, 1.0)
        if "walks" in fields
        else walks,
        options={key: fields[key].value for key in taken if key in fields},
    )
