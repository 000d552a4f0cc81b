"""The campaign file: which faults, what the commands must be, and how soon."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from an_control.wiring.checked_yaml import Entry, read_yaml
from campaign.faults import FAULTS

COMMANDS = ("safe", "acts", "silent", "ends")
WALKS_S = 3.0
"""Within so long after a fault's end a robot that is up walks again, at half its speed."""
_KEYS = ("fault", "commands", "within_s", "recovered_s")
_DEFAULTS = ("lasts_s", "walks", "walks_on", "times", "log_lines", "read_s")
_READ = ("log", "diagnostics", "check")
NOT = "!"
"""Begins a pattern that no line may have."""
_SHARE = "a share from 0 to 1"


@dataclass(frozen=True)
class Fault:
    """One fault of the campaign.

    kind         what is done: a name of `campaign.faults.FAULTS`
    commands     what the commands must be while it lasts: safe, acts, silent or ends
    within_s     how soon they must be so; with acts, the greatest time between two commands of
                 the policy
    recovered_s  how soon after its end the policy must act again
    lasts_s      how long it lasts
    walks        share of tries after which the robot must walk again within WALKS_S, of those in
                 which it has not fallen
    walks_on     share of tries in which the robot must walk all the time, at half its speed
    times        how often it is tried
    log_lines    how many lines the node may log in one try
    wiring       what the node's wiring has beside the Ant's or otherwise, as a wiring file says it
    log, diagnostics, check  patterns of what must be read there, or after NOT must not be
    read_s       how soon after the fault log and diagnostics must have it
    options      what else the kind takes
    """

    name: str
    kind: str
    commands: str
    within_s: float
    recovered_s: float
    lasts_s: float
    walks: float
    walks_on: float = 0.0
    times: int = 1
    log_lines: int = 100
    wiring: dict[str, Any] = field(default_factory=dict)
    log: tuple[str, ...] = ()
    diagnostics: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    read_s: float = 600.0

    @property
    def is_read(self) -> bool:
        """Whether anything of it must be read, or must not be."""
        return bool(self.log or self.diagnostics or self.check)

    options: dict[str, Any] = field(default_factory=dict)


def load_plan(path: str | Path) -> tuple[Fault, ...]:
    """Read a campaign file; WiringError names file, key, value and what is allowed."""
    top = read_yaml(path).read_fields(("an_control_campaign", "faults", *_DEFAULTS))
    if top["an_control_campaign"].read_number("1, the version of the format") != 1:
        raise top["an_control_campaign"].make_error("1, the version of the format")
    _common(top)  # also where every fault has its own
    faults = top["faults"].iterate_items("at least one fault")
    return tuple(_fault(name, entry, top) for name, entry in faults)


def _common(fields: Mapping[str, Entry]) -> dict[str, Any]:
    """The values of _DEFAULTS."""
    return {
        "lasts_s": fields["lasts_s"].read_number("seconds", 0.1, 600.0),
        "walks": fields["walks"].read_number(_SHARE, 0.0, 1.0),
        "walks_on": fields["walks_on"].read_number(_SHARE, 0.0, 1.0),
        "times": int(fields["times"].read_number("how often, 1 or more", 1, 1000)),
        "log_lines": int(fields["log_lines"].read_number("a number of lines", 0, 10**6)),
        "read_s": fields["read_s"].read_number("seconds", 0.0, 600.0),
    }


def _fault(name: str, entry: Entry, defaults: Mapping[str, Entry]) -> Fault:
    kind = dict(entry.iterate_items("a mapping")).get("fault")
    taken: list[str] = []
    if kind is not None:
        if kind.value not in FAULTS:
            raise kind.make_error(" or ".join(FAULTS))
        _, *taken = signature(FAULTS[str(kind.value)]).parameters
    fields = entry.read_fields(_KEYS, (*_DEFAULTS, *_READ, "wiring", *taken))
    commands = fields["commands"]
    if commands.value not in COMMANDS:
        raise commands.make_error(" or ".join(COMMANDS))
    wiring = dict(fields["wiring"].iterate_items("part of a wiring")) if "wiring" in fields else {}
    return Fault(
        name=name,
        kind=str(fields["fault"].value),
        commands=str(commands.value),
        within_s=fields["within_s"].read_number("seconds", 0.0, 600.0),
        recovered_s=fields["recovered_s"].read_number("seconds", 0.0, 600.0),
        wiring={key: one.value for key, one in wiring.items()},
        **{key: _patterns(fields[key]) for key in _READ if key in fields},
        options={key: fields[key].value for key in taken if key in fields},
        **_common({**defaults, **fields}),
    )


def _patterns(entry: Entry) -> tuple[str, ...]:
    patterns = entry.value if isinstance(entry.value, list) else []
    for pattern in patterns or [None]:
        try:
            re.compile(pattern.removeprefix(NOT))
        except (AttributeError, re.error):
            raise entry.make_error(f"a list of regular expressions, perhaps after {NOT}") from None
    return tuple(patterns)
