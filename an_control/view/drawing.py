"""A reader of robot drawings: skeletons of links, described in a YAML file.

docs/how-to/watch.md describes the format. The drawing of `walker.yaml`, a robot's wiring file, is
`walker_drawing.yaml` in the same folder; for a robot without a drawing, a shipped drawing is used
if the robot has all joints of that drawing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from an_control.system.share import find_share_path
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


def find_skeleton_for_drawing(joints: Sequence[str], wiring: str) -> Skeleton | None:
    """Find the skeleton (tree of links) by which a robot is drawn; return None if none fits.

    It comes from a drawing file beside the wiring file. If there is none, the skeletons that ship
    with the code are tried: those that have no other joints than `joints`. The one with most joints
    is returned.

    Args:
        joints: Names of the joints whose positions are known.
        wiring: Path of the robot's wiring file, or "" if it is not known.

    Raises:
        WiringError: The robot's own drawing is not valid, or names a joint that is not in `joints`.
    """
    path = os.path.splitext(wiring)[0] + ENDING
    if wiring and os.path.exists(path):
        skeleton = read_skeleton(path)
        for link in skeleton.links:
            if link.joint and link.joint not in joints:
                allowed = f"a joint of the robot: {', '.join(joints)}"
                raise WiringError(path, f"links.{link.name}.joint", link.joint, allowed)
        return skeleton
    fitting = [one for one in _load_shipped_skeletons() if one.joints <= set(joints)]
    return max(fitting, key=lambda one: len(one.joints), default=None)


@cache
def _load_shipped_skeletons() -> tuple[Skeleton, ...]:
    """Return all skeletons that ship with the code."""
    return tuple(map(read_skeleton, sorted(find_share_path("config").glob(f"*{ENDING}"))))


def read_skeleton(path: str | Path) -> Skeleton:
    """Return the skeleton that a drawing file describes.

    Args:
        path: The path of the file.

    Raises:
        WiringError: The file is not valid; the message names file, key, value and what is allowed.
    """
    top = read_yaml(path).read_fields(("an_control_drawing", "links"), ("base", "view"))
    if top["an_control_drawing"].read_number("1, the version of the format") != 1:
        raise top["an_control_drawing"].make_error("1, the version of the format")
    links: list[SkeletonLink] = []
    for name, entry in top["links"].iterate_items("a mapping of links, each with to and width"):
        links.append(_read_skeleton_link(name, entry, [link.name for link in links]))
    if not any(link.joint for link in links):
        raise top["links"].make_error("links of which at least one has a joint")
    base = top["base"].read_fields((), ("height", "moves")) if "base" in top else {}
    view = top["view"].read_fields((), ("yaw", "tilt", "span")) if "view" in top else {}
    moves = base.get("moves")
    if moves is not None and not isinstance(moves.value, bool):
        raise moves.make_error("true or false")
    return Skeleton(
        links=links,
        height=_read_optional_number(base, "height", 0.0, "m", -MAX_M, MAX_M),
        moves=moves is None or bool(moves.value),
        yaw=_read_optional_number(view, "yaw", -0.6, "rad", -10.0, 10.0),
        tilt=_read_optional_number(view, "tilt", 0.5, "rad", 0.0, 1.5),
        span=_read_optional_number(view, "span", 2.5, "m", 0.01, MAX_M),
    )


def _read_skeleton_link(name: str, entry: Entry, earlier_links: list[str]) -> SkeletonLink:
    """Return one link of a robot's skeleton, read from a drawing file."""
    jointed = isinstance(entry.value, dict) and "joint" in entry.value
    keys = entry.read_fields(
        ("to", "width", "axis") if jointed else ("to", "width"),
        ("parent", "colour", "joint", "kind") if jointed else ("parent", "colour", "joint"),
        dict.fromkeys(("axis", "kind"), "a link without a joint has none"),
    )
    parent = keys.get("parent")
    if parent is not None and parent.value not in earlier_links:
        raise parent.make_error(
            f"a link before this one in the file: {', '.join(earlier_links) or 'none'}"
        )
    axis = _read_numbers(keys["axis"], AXIS, _SPACE) if "axis" in keys else []
    if "axis" in keys and not any(axis):
        raise keys["axis"].make_error(AXIS)
    colour = [28.0, 55.0, 50.0]
    if "colour" in keys:
        colour = _read_numbers(keys["colour"], COLOUR, ((0, 360), (0, 100), (0, 100)))
    return SkeletonLink(
        name=name,
        parent=-1 if parent is None else earlier_links.index(str(parent.value)),
        joint=keys["joint"].read_text("the name of a joint", _NAME) if "joint" in keys else "",
        kind=keys["kind"].read_text("revolute, prismatic", _KIND) if "kind" in keys else "revolute",  # type: ignore[arg-type]
        axis=axis,
        to=_read_numbers(keys["to"], VECTOR, _SPACE),
        width=keys["width"].read_number(f"m, 0 to {MAX_M:g}", 0.0, MAX_M),
        colour=colour,
    )


def _read_numbers(
    entry: Entry, allowed_text: str, bounds: Sequence[tuple[float, float]]
) -> list[float]:
    """Return the numbers of an entry in a drawing file.

    `bounds` has the lowest and the highest value of each number that the list must have.
    """
    if not isinstance(entry.value, list) or len(entry.value) != len(bounds):
        raise entry.make_error(allowed_text)
    elements = (Entry(entry.file, entry.key, value) for value in entry.value)
    return [
        one.read_number(allowed_text, *pair) for one, pair in zip(elements, bounds, strict=True)
    ]


def _read_optional_number(
    group: dict[str, Entry], key: str, default: float, unit: str, low: float, high: float
) -> float:
    """Return a number of a drawing file, or its default value if the file does not have it."""
    if key not in group:
        return default
    return group[key].read_number(f"{unit}, {low:g} to {high:g}", low, high)
