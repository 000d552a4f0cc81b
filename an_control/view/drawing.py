"""A reader of robot drawings: skeletons of links, described in a YAML file.

docs/view.md describes the format. The drawing of `walker.yaml`, a robot's wiring, is
`walker_drawing.yaml` in the same folder; a robot without a drawing is drawn by a shipped file whose
joints it all has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from an_control.system.share import share_path
from an_control.view.schema import Skeleton, SkeletonLink
from an_control.wiring.checked_yaml import Entry, WiringError, read_yaml

ENDING = "_drawing.yaml"
MAX_M = 1000.0
VECTOR = f"[x, y, z] in m, forward, left and up, none beyond +-{MAX_M:g}"
AXIS = "[x, y, z], the direction of the joint's axis, not all of them 0"
COLOUR = "[hue, saturation, lightness], 0 to 360 degrees, 0 to 100 % and 0 to 100 %"
_NAME = re.compile(r".{1,200}")
_KIND = re.compile("revolute|prismatic")
_SPACE = ((-MAX_M, MAX_M),) * 3


def find_skeleton(joints: Sequence[str], wiring: str) -> Skeleton | None:
    """Return the skeleton of a robot, or None if there is no drawing of it.

    Args:
        joints: Names of the joints whose positions are known.
        wiring: Path of the robot's wiring, or "" if it is not known.

    Raises:
        WiringError: If the robot's own drawing is wrong, or names a joint that is not among
            `joints`.
    """
    path = os.path.splitext(wiring)[0] + ENDING
    if wiring and os.path.exists(path):
        skeleton = read_skeleton(path)
        for link in skeleton.links:
            if link.joint and link.joint not in joints:
                allowed = f"a joint of the robot: {', '.join(joints)}"
                raise WiringError(path, f"links.{link.name}.joint", link.joint, allowed)
        return skeleton
    fitting = [one for one in _shipped_skeletons() if one.joints <= set(joints)]
    return max(fitting, key=lambda one: len(one.joints), default=None)


@cache
def _shipped_skeletons() -> tuple[Skeleton, ...]:
    """Return the shipped skeletons."""
    return tuple(map(read_skeleton, sorted(share_path("config").glob(f"*{ENDING}"))))


def read_skeleton(path: str | Path) -> Skeleton:
    """Return the skeleton that a drawing file describes.

    Raises:
        WiringError: If the file is wrong.
    """
    top = read_yaml(path).fields(("an_control_drawing", "links"), ("base", "view"))
    if top["an_control_drawing"].number("1, the version of the format") != 1:
        raise top["an_control_drawing"].error("1, the version of the format")
    links: list[SkeletonLink] = []
    for name, entry in top["links"].items("a mapping of links, each with to and width"):
        links.append(_read_link(name, entry, [link.name for link in links]))
    if not any(link.joint for link in links):
        raise top["links"].error("links of which at least one has a joint")
    base = top["base"].fields((), ("height", "moves")) if "base" in top else {}
    view = top["view"].fields((), ("yaw", "tilt", "span")) if "view" in top else {}
    moves = base.get("moves")
    if moves is not None and not isinstance(moves.value, bool):
        raise moves.error("true or false")
    return Skeleton(
        links=links,
        height=_read_optional(base, "height", 0.0, "m", -MAX_M, MAX_M),
        moves=moves is None or bool(moves.value),
        yaw=_read_optional(view, "yaw", -0.6, "rad", -10.0, 10.0),
        tilt=_read_optional(view, "tilt", 0.5, "rad", 0.0, 1.5),
        span=_read_optional(view, "span", 2.5, "m", 0.01, MAX_M),
    )


def _read_link(name: str, entry: Entry, above: list[str]) -> SkeletonLink:
    """Return one link; `above` are the names of the links before it."""
    jointed = isinstance(entry.value, dict) and "joint" in entry.value
    keys = entry.fields(
        ("to", "width", "axis") if jointed else ("to", "width"),
        ("parent", "colour", "joint", "kind") if jointed else ("parent", "colour", "joint"),
        dict.fromkeys(("axis", "kind"), "a link without a joint has none"),
    )
    parent = keys.get("parent")
    if parent is not None and parent.value not in above:
        raise parent.error(f"a link above this one in the file: {', '.join(above) or 'none'}")
    axis = _read_numbers(keys["axis"], AXIS, _SPACE) if "axis" in keys else []
    if "axis" in keys and not any(axis):
        raise keys["axis"].error(AXIS)
    colour = [28.0, 55.0, 50.0]
    if "colour" in keys:
        colour = _read_numbers(keys["colour"], COLOUR, ((0, 360), (0, 100), (0, 100)))
    return SkeletonLink(
        name=name,
        parent=-1 if parent is None else above.index(str(parent.value)),
        joint=keys["joint"].text("the name of a joint", _NAME) if "joint" in keys else "",
        kind=keys["kind"].text("revolute, prismatic", _KIND) if "kind" in keys else "revolute",  # type: ignore[arg-type]
        axis=axis,
        to=_read_numbers(keys["to"], VECTOR, _SPACE),
        width=keys["width"].number(f"m, 0 to {MAX_M:g}", 0.0, MAX_M),
        colour=colour,
    )


def _read_numbers(entry: Entry, what: str, bounds: Sequence[tuple[float, float]]) -> list[float]:
    """Return a list of numbers within these bounds."""
    if not isinstance(entry.value, list) or len(entry.value) != len(bounds):
        raise entry.error(what)
    elements = (Entry(entry.file, entry.key, value) for value in entry.value)
    return [one.number(what, *pair) for one, pair in zip(elements, bounds, strict=True)]


def _read_optional(
    group: dict[str, Entry], key: str, default: float, unit: str, low: float, high: float
) -> float:
    """Return an optional number."""
    if key not in group:
        return default
    return group[key].number(f"{unit}, {low:g} to {high:g}", low, high)
