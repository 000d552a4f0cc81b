"""What the numbers of a foreign network mean: which channels it reads, and what its actions are.

Both come from the metadata of the ONNX file, as Isaac Lab, mjlab and rsl_rl write it, and from the
YAML file beside it, which goes first. Nothing is guessed: what neither says is asked for.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from an_control.policy.sizes import MAX_SIZE
from an_control.wiring.checked_yaml import Description, Entry, MissingItem, WiringError, read_yaml

FORMAT = 1
AXES = ("x", "y", "z")
POSITIONS, VELOCITIES = "joint_positions", "joint_velocities"
PREVIOUS, PHASE = "previous_action", "phase"
TERMS = (POSITIONS, VELOCITIES, PREVIOUS, PHASE)
"""What a term of the YAML file may be instead of `channels`."""
OBSERVATIONS = {
    "joint_pos": POSITIONS,
    "joint_pos_rel": POSITIONS,
    "joint_vel": VELOCITIES,
    "joint_vel_rel": VELOCITIES,
    "actions": PREVIOUS,
    "last_action": PREVIOUS,
    "prev_actions": PREVIOUS,
    "previous_action": PREVIOUS,
}
"""Observations of Isaac Lab and mjlab that are a term, by their names in the metadata."""
VECTORS = ("base_lin_vel", "base_ang_vel", "projected_gravity")
"""Observations that are three channels: NAME.x, NAME.y and NAME.z."""
MAX_HISTORY = 1000
MAX_LIMIT = 1e6
ORDINARY = 1e9
"""No scale, offset or bound of an observation may be larger."""
_NAME = re.compile(r"\S.{0,199}")
_NAMES = "a list of names that differ"

Order = Literal["step", "term"]
End = Literal["last", "first"]
Start = Literal["repeat", "zero"]


class Term(NamedTuple):
    """A part of the observation: each number is ``value * scale + offset``, then clipped.

    Attributes:
        kind: "channels", "previous_action" or "phase" (sine and cosine).
        channels: ids (width,) of the readings, for "channels".
        scale, offset: (width,).
        clip: min and max.
        period_s: of the phase.
    """

    kind: str
    channels: tuple[str, ...]
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    clip: tuple[float, float] = (-math.inf, math.inf)
    period_s: float = 1.0

    @property
    def width(self) -> int:
        """How many numbers it gives to the network."""
        return len(self.scale)


@dataclass(frozen=True)
class History:
    """How the last observations are given to the network.

    length   ticks
    by       step: one whole observation after the other; term: all ticks of each term together
    newest   whether the newest tick stands last or first
    start    what stands there before enough ticks have come: the first observation, or zeros
    """

    length: int = 1
    by: Order = "term"
    newest: End = "last"
    start: Start = "repeat"


@dataclass(frozen=True)
class Layout:
    """What a network reads and gives.

    Attributes:
        terms: of one observation, in order.
        history: of observations.
        actuators: (A,) names in the order of the action.
        limit: the largest action of the network; it stands for 1 in the action of the policy.
        action_scale, action_offset: (A,) by which the network's action becomes a command; empty
            where the file does not say.
        step_s: the period of its ticks; None where nobody says.
        task: the name of the task that it was trained for, or "".
        hand_over: the file of a student that acts until the order is known, beside the YAML file,
            or "".
    """

    terms: tuple[Term, ...]
    history: History
    actuators: tuple[str, ...]
    limit: float
    action_scale: tuple[float, ...]
    action_offset: tuple[float, ...]
    step_s: float | None
    task: str
    hand_over: str = ""

    @property
    def channels(self) -> tuple[str, ...]:
        """The ids (N,) of all readings, in the order in which they are first named."""
        return tuple(id_ for term in self.terms for id_ in term.channels)

    @property
    def computes(self) -> bool:
        """Whether a term is computed, and not read from channels."""
        return any(term.kind != "channels" for term in self.terms)

    @property
    def width(self) -> int:
        """How many numbers the network gets, with the history."""
        return self.history.length * sum(term.width for term in self.terms)


class Given(NamedTuple):
    """The lengths of a network's observation and action, and what its file says of itself."""

    file: str
    inputs: int
    actions: int
    metadata: Mapping[str, str]


def read_layout(given: Given, yaml_file: str | None) -> Layout:
    """Return the layout of a network; `yaml_file` is the file beside it, None where there is none.

    Raises:
        ValueError: names the file, what is wrong and what to do.
        WiringError: the same, of the YAML file.
    """
    beside = {} if yaml_file is None else _fields(yaml_file)
    metadata = _Metadata(given)
    actuators = _actuators(given, beside.get("actuators"), metadata)
    limit, scale, offset = _actions(given, beside.get("action"), metadata)
    history = _history(beside.get("history"))
    if history.length * MAX_SIZE < given.inputs or given.inputs % history.length:
        raise ValueError(f"{given.inputs} inputs are no history of {history.length} observations")
    width = given.inputs // history.length
    joints = _Joints(metadata.names("joint_names") or actuators, metadata)
    if "observation" in beside:
        terms = _terms(beside["observation"], given, joints)
        where = str(yaml_file)
    else:
        terms, where = _named_terms(given, metadata, joints, width), "its observation_names"
    layout = Layout(
        terms,
        history,
        actuators,
        limit,
        scale,
        offset,
        _step(beside.get("step_s"), metadata),
        _task(beside.get("task"), metadata),
        _hand_over(beside.get("hand_over")),
    )
    _check_ids(layout, where)
    if layout.step_s is None and any(one.kind == PHASE for one in terms):
        raise WiringError(str(yaml_file), "", MissingItem("'step_s'"), "step_s, for term: phase")
    if layout.width != given.inputs:
        parts = " + ".join(f"{one.width} {_title(one)}" for one in terms)
        ticks = f", times {history.length} ticks of history" if history.length > 1 else ""
        raise ValueError(
            f"{given.inputs} inputs, but {where} describes {layout.width}: {parts}{ticks}"
        )
    return layout


def _title(term: Term) -> str:
    return term.kind if term.kind != "channels" else f"from {term.channels[0]}"


def _check_ids(layout: Layout, where: str) -> None:
    seen: set[str] = set()
    for id_ in layout.channels:
        if id_ in seen:
            raise ValueError(f"{where} names the channel {id_!r} twice; each may be there once")
        seen.add(id_)


def _fields(file: str) -> dict[str, Entry]:
    known = (
        *("observation", "history", "actuators", "action", "states", "inputs"),
        *("step_s", "task", "hand_over"),
    )
    fields = read_yaml(file).fields(("an_control_policy",), known)
    if fields["an_control_policy"].value != FORMAT:
        raise fields["an_control_policy"].error(str(FORMAT))
    return fields


def read_names(yaml_file: str | None) -> tuple[dict[str, str], str | None, str | None]:
    """Return the network's states as inputs and outputs, its observation and its action, by name.

    None where the YAML file does not name it.
    """
    beside = {} if yaml_file is None else _fields(yaml_file)
    states: dict[str, str] = {}
    if "states" in beside:
        pairs = beside["states"].items("a mapping from inputs to outputs, as in h_in: h_out")
        states = {name: entry.text("the name of an output", _NAME) for name, entry in pairs}
    observation = action = None
    if "inputs" in beside:
        one = beside["inputs"].fields(("observation",))
        observation = one["observation"].text("the name of an input", _NAME)
    if "action" in beside:
        output = beside["action"].fields((), ("limit", "scale", "offset", "output")).get("output")
        action = None if output is None else output.text("the name of an output", _NAME)
    return states, observation, action


class _Metadata:
    """The metadata of an ONNX file: comma-separated names and numbers."""

    def __init__(self, given: Given) -> None:
        self._texts = given.metadata

    def text(self, key: str) -> str:
        return self._texts.get(key, "").strip()

    def names(self, key: str) -> tuple[str, ...]:
        text = self.text(key).strip("[]() ")
        return tuple(one.strip().strip("'\"") for one in text.split(",")) if text else ()

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """Return `count` numbers, or () where there are none; one number counts for all."""
        names = self.names(key)
        try:
            numbers = tuple(float(one) for one in names)
        except ValueError:
            raise ValueError(f"metadata {key}: {self.text(key)[:60]!r} are not numbers") from None
        if len(numbers) == 1:
            numbers *= count
        if numbers and (len(numbers) != count or not all(map(math.isfinite, numbers))):
            raise ValueError(
                f"metadata {key}: {len(numbers)} numbers; needed are {count} finite ones"
            )
        return numbers


class _Joints:
    """The joints whose positions and velocities are observed."""

    def __init__(self, names: tuple[str, ...], metadata: _Metadata) -> None:
        self.names = names
        defaults = metadata.numbers("default_joint_pos", len(names))
        self.defaults = defaults or (0.0,) * len(names)

    def ids(self, kind: str) -> tuple[str, ...]:
        ending = "position" if kind == POSITIONS else "velocity"
        return tuple(f"{name}.{ending}" for name in self.names)


def _actuators(given: Given, entry: Entry | None, metadata: _Metadata) -> tuple[str, ...]:
    names = metadata.names("joint_names") if entry is None else _names(entry)
    if not names:
        raise ValueError(
            f"names no actuators: its metadata has no joint_names; list the {given.actions}"
            f" actuators in {yaml_name(given.file)}"
        )
    if len(names) != given.actions or len(set(names)) != len(names):
        where = "its joint_names" if entry is None else f"{entry.file}: {entry.key}"
        raise ValueError(
            f"{given.actions} actions, but {where} has {len(names)} names ({len(set(names))} that"
            " differ); needed is one for each"
        )
    return names


def _actions(
    given: Given, entry: Entry | None, metadata: _Metadata
) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """Return limit, scale and offset of the network's actions."""
    fields = {} if entry is None else entry.fields((), ("limit", "scale", "offset", "output"))
    scale = metadata.numbers("action_scale", given.actions)
    offset = metadata.numbers("default_joint_pos", given.actions) if scale else ()
    if "scale" in fields:
        scale = _numbers(fields["scale"], given.actions)
        offset = offset or (0.0,) * given.actions
    if "offset" in fields:
        offset = _numbers(fields["offset"], given.actions)
        scale = scale or (1.0,) * given.actions
    if "limit" in fields:
        what = f"the largest action of the network, from 1e-6 to {MAX_LIMIT:g}"
        return fields["limit"].number(what, 1e-6, MAX_LIMIT), scale, offset
    if limits := metadata.numbers("action_limit", 1):
        if not 1e-6 <= limits[0] <= MAX_LIMIT:
            raise ValueError(f"metadata action_limit: {limits[0]:g} is not 1e-6 to {MAX_LIMIT:g}")
        return limits[0], scale, offset
    if scale:
        raise ValueError(
            "its actions are scaled (action_scale), so they may be larger than 1; say in"
            f" {yaml_name(given.file)} which is the largest, as in  action: {{limit: 5.0}}"
        )
    return 1.0, scale, offset


def _history(entry: Entry | None) -> History:
    if entry is None:
        return History()
    fields = entry.fields(("length",), ("by", "newest", "start"))
    length = fields["length"]
    if type(length.value) is not int or not 1 <= length.value <= MAX_HISTORY:
        raise length.error(f"ticks, a whole number from 1 to {MAX_HISTORY}")
    choices: dict[str, str] = {}
    for key, allowed in (("by", Order), ("newest", End), ("start", Start)):
        if key in fields:
            if fields[key].value not in get_args(allowed):
                raise fields[key].error(" or ".join(get_args(allowed)))
            choices[key] = str(fields[key].value)
    return History(length.value, **choices)  # type: ignore[arg-type]


def _terms(entry: Entry, given: Given, joints: _Joints) -> tuple[Term, ...]:
    """Return the terms that the YAML file lists."""
    if not isinstance(entry.value, list) or not entry.value:
        raise entry.error("a list of terms, in the order of the network's input")
    if len(entry.value) > MAX_SIZE:
        raise entry.error(f"at most {MAX_SIZE} terms")
    return tuple(
        _term(Entry(entry.file, f"{entry.key}[{number}]", value), given, joints)
        for number, value in enumerate(entry.value)
    )


def _term(entry: Entry, given: Given, joints: _Joints) -> Term:
    options = ("scale", "offset", "clip", "period_s")
    fields = entry.fields((), ("channels", "term", *options))
    if ("channels" in fields) == ("term" in fields):
        raise WiringError(
            entry.file, entry.key, Description(str(sorted(fields))), "either channels or term"
        )
    kind, ids, bases = "channels", (), ()  # type: str, tuple[str, ...], tuple[float, ...]
    if "channels" in fields:
        ids = _names(fields["channels"])
        width = len(ids)
    else:
        kind = str(fields["term"].value)
        if kind not in TERMS:
            near = difflib.get_close_matches(kind, TERMS, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise fields["term"].error(f"one of {', '.join(TERMS)}{hint}")
        width = {PREVIOUS: given.actions, PHASE: 2}.get(kind, len(joints.names))
        if kind in (POSITIONS, VELOCITIES):
            ids = joints.ids(kind)
            bases = joints.defaults if kind == POSITIONS else ()
            kind = "channels"
    if (kind == PHASE) != ("period_s" in fields):
        raise WiringError(
            entry.file,
            entry.key,
            MissingItem("'period_s'"),
            "period_s with term: phase, nowhere else",
        )
    period = 1.0
    if kind == PHASE:
        period = fields["period_s"].number("seconds, from 0.001 to 1e6", 1e-3, 1e6)
    scale = _numbers(fields["scale"], width) if "scale" in fields else (1.0,) * width
    offset = _numbers(fields["offset"], width) if "offset" in fields else (0.0,) * width
    if bases:
        offset = tuple(o - b * s for o, b, s in zip(offset, bases, scale, strict=True))
    clip = (-math.inf, math.inf)
    if "clip" in fields:
        clip = fields["clip"].range("[min, max], two finite numbers, the min first", ORDINARY)
    return Term(kind, ids, scale, offset, clip, period)


def _named_terms(
    given: Given, metadata: _Metadata, joints: _Joints, width: int
) -> tuple[Term, ...]:
    """Return the terms that the metadata names."""
    names = metadata.names("observation_names")
    if not names:
        raise ValueError(
            f"does not say what its {given.inputs} inputs are: its metadata has no"
            f" observation_names; list them in {yaml_name(given.file)} under observation"
        )
    known = {one: _known_term(one, given, joints) for one in names}
    rest = width - sum(term.width for one in names if (term := known[one]) is not None)
    unknown = [one for one in names if known[one] is None]
    each = 1
    if unknown and rest != len(unknown):
        if len(unknown) > 1 or rest < 1:
            raise ValueError(
                f"{width} inputs, but the widths of its observations {', '.join(unknown[:5])} are"
                f" not known ({rest} inputs are left for these {len(unknown)}); list all terms in"
                f" {yaml_name(given.file)} under observation"
            )
        each = rest
    terms = []
    for one in names:
        term = known[one]
        if term is None:
            ids = (one,) if each == 1 else tuple(f"{one}.{place}" for place in range(each))
            term = Term("channels", ids, (1.0,) * each, (0.0,) * each)
        terms.append(term)
    return tuple(terms)


def _known_term(name: str, given: Given, joints: _Joints) -> Term | None:
    """Return the term of an observation whose width is known by its name."""
    kind = OBSERVATIONS.get(name)
    if kind == PREVIOUS:
        return Term(PREVIOUS, (), (1.0,) * given.actions, (0.0,) * given.actions)
    if kind is not None:
        count = len(joints.names)
        offset = tuple(-one for one in joints.defaults) if kind == POSITIONS else (0.0,) * count
        return Term("channels", joints.ids(kind), (1.0,) * count, offset)
    if name in VECTORS:
        ids = tuple(f"{name}.{axis}" for axis in AXES)
        return Term("channels", ids, (1.0,) * 3, (0.0,) * 3)
    return None


def _names(entry: Entry) -> tuple[str, ...]:
    names = entry.value
    if not isinstance(names, list) or not names or len(names) > MAX_SIZE:
        raise entry.error(_NAMES)
    if not all(isinstance(one, str) and _NAME.fullmatch(one) for one in names):
        raise entry.error(_NAMES)
    if len(set(names)) != len(names):
        twice = next(one for one in names if names.count(one) > 1)
        raise WiringError(entry.file, entry.key, Description(f"{twice!r} twice"), _NAMES)
    return tuple(names)


def _numbers(entry: Entry, count: int) -> tuple[float, ...]:
    what = f"a finite number, or a list of {count} of them"
    values: Sequence[object] = entry.value if isinstance(entry.value, list) else [entry.value]
    if isinstance(entry.value, list) and len(values) != count:
        raise entry.error(what)
    found = tuple(
        Entry(entry.file, entry.key, one).number(what, -ORDINARY, ORDINARY) for one in values
    )
    return found if isinstance(entry.value, list) else found * count


def _step(entry: Entry | None, metadata: _Metadata) -> float | None:
    if entry is not None:
        return entry.number("seconds, from 1e-6 to 3600", 1e-6, 3600.0)
    found = metadata.numbers("step_s", 1)
    return found[0] if found else None


def _task(entry: Entry | None, metadata: _Metadata) -> str:
    return metadata.text("task") if entry is None else entry.text("the name of a task", _NAME)


def _hand_over(entry: Entry | None) -> str:
    if entry is None:
        return ""
    name = entry.text("the name of a .safetensors file beside this one", _NAME)
    if not name.endswith(".safetensors") or "/" in name:
        raise entry.error("the name of a .safetensors file beside this one")
    return name


def yaml_name(file: str) -> str:
    """Return the name of the YAML file beside a foreign policy."""
    return f"{file.removesuffix('.onnx')}.policy.yaml"
