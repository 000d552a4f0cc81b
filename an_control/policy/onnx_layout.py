"""The meaning of the numbers of an ONNX network: which channels it reads, and what its actions are.

Both are described by the metadata of the ONNX file, as Isaac Lab, mjlab and rsl_rl write it, and by
the YAML file beside the ONNX file, which takes precedence. Nothing is guessed. If neither file says
something that is needed, an error asks for it.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
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
"""The allowed values of the key `term` in an observation of the YAML file."""
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
"""A mapping from an observation's name in the metadata of Isaac Lab and mjlab to the kind of term
that it is."""
VECTORS = ("base_lin_vel", "base_ang_vel", "projected_gravity")
"""Names of observations that are three channels each: NAME.x, NAME.y and NAME.z."""
MAX_HISTORY = 1000
MAX_LIMIT = 1e6
ORDINARY = 1e9
"""The largest magnitude of the scales, offsets and clip bounds of an observation."""
_LENGTHS = "observation_history_lengths"
_NAME = re.compile(r"\S.{0,199}")
_NAMES = "a list of names that differ"

Order = Literal["step", "term"]
End = Literal["last", "first"]
Start = Literal["repeat", "zero"]


class ObservationTerm(NamedTuple):
    """A part of a network's observation, such as some readings or the previous action.

    Each of its numbers is ``value * scale + offset``, limited to the range `clip`.

    Attributes:
        kind: "channels", "previous_action" or "phase" (sine and cosine of the time, with a fixed
            period).
        channels: (width,) the ids of the channels, for "channels".
        scale: (width,) the factor on each number.
        offset: (width,) the summand of each number.
        clip: The lowest and the highest value.
        period_s: The period of "phase" in seconds.
    """

    kind: str
    channels: tuple[str, ...]
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    clip: tuple[float, float] = (-math.inf, math.inf)
    period_s: float = 1.0

    @property
    def width(self) -> int:
        """The number of inputs of the network that the term fills."""
        return len(self.scale)


@dataclass(frozen=True)
class HistoryArrangement:
    """The way in which the newest observations are arranged in the network's input.

    Attributes:
        length: The number of observations, one a tick.
        by: The order: "step" puts one whole observation after the other; "term" puts all ticks of
            the first term, then all ticks of the next term.
        newest: The place of the newest tick, "last" or "first".
        start: The filling of the input before enough ticks have come: "repeat" (the first
            observation) or "zero".
    """

    length: int = 1
    by: Order = "term"
    newest: End = "last"
    start: Start = "repeat"


@dataclass(frozen=True)
class NetworkLayout:
    """The meaning of a network's inputs and outputs.

    Attributes:
        terms: The terms of one observation, in order.
        history: The arrangement of the newest observations.
        actuators: (A,) the actuators' names in the order of the action.
        limit: The largest action of the network, which is scaled to 1 in the policy's action.
        action_scale: (A,) the factors that turn the network's action into a command; empty if
            unknown.
        action_offset: (A,) the summands that are added to the scaled action; empty if unknown.
        step_s: The period of the ticks in seconds; None if no file says it.
        task: The name of the task that the network was trained for; "" if unknown.
        hand_over: The name of a model file beside the YAML file, whose policy acts until the order
            of the channels is known; "" if there is none.
        excitation: The name of a file beside the YAML file, with motions from which the order of
            the channels is found; "" if there is none.
        limit_is_assumed: Whether the limit is 1 because no file says another.
    """

    terms: tuple[ObservationTerm, ...]
    history: HistoryArrangement
    actuators: tuple[str, ...]
    limit: float
    action_scale: tuple[float, ...]
    action_offset: tuple[float, ...]
    step_s: float | None
    task: str
    hand_over: str = ""
    excitation: str = ""
    limit_is_assumed: bool = False

    @property
    def channels(self) -> tuple[str, ...]:
        """The ids (N,) of all channels in the observation, in the order of its parts (`terms`)."""
        return tuple(id_ for term in self.terms for id_ in term.channels)

    @property
    def has_computed_terms(self) -> bool:
        """Whether the observation has a term that is no reading, such as the previous action."""
        return any(term.kind != "channels" for term in self.terms)

    @property
    def input_count(self) -> int:
        """The length of the network's input, which holds the observations of the newest ticks."""
        return self.history.length * sum(term.width for term in self.terms)


class NetworkInterface(NamedTuple):
    """The sizes of a network's observation and action, and the metadata in its file.

    Attributes:
        file: The name of the ONNX file.
        inputs: The number of inputs of the network.
        actions: The number of actions.
        metadata: The metadata of the file, by key.
    """

    file: str
    inputs: int
    actions: int
    metadata: Mapping[str, str]


def read_network_layout(network: NetworkInterface, yaml_file: str | None) -> NetworkLayout:
    """Return the meaning of a network's inputs and outputs.

    Args:
        network: The sizes of the network, and its metadata.
        yaml_file: The path of the YAML file beside the ONNX file; None if there is none.

    Raises:
        ValueError: The files do not describe the network; the message names the file, the reason
            and the remedy.
        WiringError: The YAML file is not valid; the message names the file, the reason and the
            remedy.
    """
    beside = {} if yaml_file is None else _read_yaml_entries(yaml_file)
    metadata = _Metadata(network)
    actuators = _resolve_actuators(network, beside.get("actuators"), metadata)
    joints = _Joints(metadata.parse_names("joint_names") or actuators, metadata)
    limit, scale, offset = _resolve_action_limit_scale_and_offset(
        network, beside.get("action"), metadata, joints, actuators
    )
    history = _parse_history(beside.get("history"))
    if "history" not in beside and set(lengths := metadata.parse_names(_LENGTHS)) - {"0", "1"}:
        raise ValueError(
            f"metadata {_LENGTHS}: {', '.join(lengths)[:60]}; say in"
            f" {get_policy_yaml_name(network.file)} how the ticks are arranged, as in"
            "  history: {length: 5, by: term}"
        )
    if history.length * MAX_SIZE < network.inputs or network.inputs % history.length:
        raise ValueError(
            f"{network.inputs} inputs are not a history of {history.length} observations"
        )
    width = network.inputs // history.length
    if "observation" in beside:
        terms = _parse_terms(beside["observation"], network, joints)
        where = str(yaml_file)
    else:
        terms = _make_terms_from_metadata(network, metadata, joints, width)
        where = "its observation_names"
    layout = NetworkLayout(
        terms,
        history,
        actuators,
        1.0 if limit is None else limit,
        scale,
        offset,
        _resolve_tick_period_s(beside.get("step_s"), metadata),
        _resolve_task_name(beside.get("task"), metadata),
        _parse_safetensors_file_name(beside.get("hand_over")),
        _parse_safetensors_file_name(beside.get("excitation")),
        limit is None,
    )
    if layout.hand_over and layout.excitation:
        raise beside["excitation"].make_error("only one of excitation and hand_over")
    if twice := [id_ for id_, count in Counter(layout.channels).items() if count > 1]:
        raise ValueError(f"{where} names the channel {twice[0]!r} twice; each may be there once")
    if layout.step_s is None and any(one.kind == PHASE for one in terms):
        raise WiringError(str(yaml_file), "", MissingItem("'step_s'"), "step_s, for term: phase")
    if layout.input_count != network.inputs:
        parts = " + ".join(f"{one.width} {_describe_term(one)}" for one in terms)
        ticks = f", times {history.length} ticks of history" if history.length > 1 else ""
        raise ValueError(
            f"{network.inputs} inputs, but {where} describes {layout.input_count}: {parts}{ticks}"
        )
    return layout


def _describe_term(term: ObservationTerm) -> str:
    """Return a short name of a term for an error message."""
    return term.kind if term.kind != "channels" else f"from {term.channels[0]}"


def _read_yaml_entries(file: str) -> dict[str, Entry]:
    """Read the YAML file beside an ONNX file; return its entries by key.

    Raises:
        WiringError: The file is not valid, or is of another format.
    """
    known = (
        *("observation", "history", "actuators", "action", "states", "inputs"),
        *("step_s", "task", "hand_over", "excitation"),
    )
    fields = read_yaml(file).read_fields(("an_control_policy",), known)
    if fields["an_control_policy"].value != FORMAT:
        raise fields["an_control_policy"].make_error(str(FORMAT))
    return fields


def read_state_observation_and_action_names(
    yaml_file: str | None,
) -> tuple[dict[str, str], str | None, str | None]:
    """Return the names of the network's tensors that the YAML file gives.

    Args:
        yaml_file: The path of the file; None if there is none.

    Returns:
        Three values: the recurrent states as a mapping from the input's name to the output's name,
        the name of the observation, and the name of the action. A name is None if the file does not
        give it.
    """
    beside = {} if yaml_file is None else _read_yaml_entries(yaml_file)
    states: dict[str, str] = {}
    if "states" in beside:
        pairs = beside["states"].iterate_items(
            "a mapping from inputs to outputs, as in h_in: h_out"
        )
        states = {name: entry.read_text("the name of an output", _NAME) for name, entry in pairs}
    observation = action = None
    if "inputs" in beside:
        one = beside["inputs"].read_fields(("observation",))
        observation = one["observation"].read_text("the name of an input", _NAME)
    if "action" in beside:
        output = (
            beside["action"].read_fields((), ("limit", "scale", "offset", "output")).get("output")
        )
        what = "the name of an output, in quotation marks if it is a number"
        action = None if output is None else output.read_text(what, _NAME)
    return states, observation, action


_SECONDS, _SECONDS_BOUNDS = "seconds, from 1e-6 to 3600", (1e-6, 3600.0)


class _Metadata:
    """A reader of an ONNX file's metadata, which holds names and numbers separated by commas.

    Args:
        network: The network's interface, with the metadata.
    """

    def __init__(self, network: NetworkInterface) -> None:
        self._texts = network.metadata

    def get_text(self, key: str) -> str:
        """Return the text of a key, or "" if the metadata does not have the key."""
        return self._texts.get(key, "").strip()

    def parse_names(self, key: str) -> tuple[str, ...]:
        """Return the names in the text of a key, or () if the metadata does not have the key."""
        text = self.get_text(key).strip("[]() ")
        return tuple(one.strip().strip("'\"") for one in text.split(",")) if text else ()

    def parse_numbers(self, key: str, count: int) -> tuple[float, ...]:
        """Return the numbers in the text of a key, or () if the metadata does not have the key.

        Args:
            key: The key.
            count: The number of numbers to return; a single number in the text is repeated.

        Raises:
            ValueError: The text does not hold that many finite numbers.
        """
        names = self.parse_names(key)
        try:
            numbers = tuple(float(one) for one in names)
        except ValueError:
            raise ValueError(
                f"metadata {key}: {self.get_text(key)[:60]!r} are not numbers"
            ) from None
        if len(numbers) == 1:
            numbers *= count
        if numbers and (len(numbers) != count or not all(map(math.isfinite, numbers))):
            raise ValueError(
                f"metadata {key}: {len(numbers)} numbers; needed are {count} finite ones"
            )
        return numbers


class _Joints:
    """The joints that the network observes, with their default positions.

    Args:
        names: The names of the joints.
        metadata: The metadata of the ONNX file, which may hold the default positions.
    """

    def __init__(self, names: tuple[str, ...], metadata: _Metadata) -> None:
        self.names = names
        defaults = metadata.parse_numbers("default_joint_pos", len(names))
        self.defaults = defaults or (0.0,) * len(names)

    def get_defaults_of(self, actuators: tuple[str, ...]) -> tuple[float, ...]:
        """Return the default positions (A,) of the actuators, which may have other names.

        Args:
            actuators: The actuators' names. If they are not all joints, they are the joints in the
                same order.

        Raises:
            ValueError: Not all actuators are joints, and there are more or fewer of them.
        """
        if set(actuators) <= set(self.names):
            return tuple(self.defaults[self.names.index(one)] for one in actuators)
        if len(actuators) != len(self.names) and any(self.defaults):
            others = ", ".join(one for one in actuators if one not in self.names)
            raise ValueError(
                f"its default_joint_pos does not say the offset of the actuators {others}: name"
                " them as in joint_names, or give the offsets, as in  action: {offset: [0.1, -0.5]}"
            )
        return self.defaults if len(actuators) == len(self.names) else (0.0,) * len(actuators)

    def make_channel_ids(self, kind: str) -> tuple[str, ...]:
        """Return the channel ids of all joints, such as "hip.position".

        Args:
            kind: "joint_positions" or "joint_velocities".
        """
        ending = "position" if kind == POSITIONS else "velocity"
        return tuple(f"{name}.{ending}" for name in self.names)


def _resolve_actuators(
    network: NetworkInterface, entry: Entry | None, metadata: _Metadata
) -> tuple[str, ...]:
    """Return the names (A,) of the actuators, from the YAML file or else from the metadata.

    Args:
        network: The sizes of the network.
        entry: The YAML file's list of names, or None.
        metadata: The metadata of the ONNX file.

    Raises:
        ValueError: There is not one name for each action.
    """
    names = metadata.parse_names("joint_names") if entry is None else _parse_names(entry)
    if not names:
        raise ValueError(
            f"names no actuators: its metadata has no joint_names; list the {network.actions}"
            f" actuators in {get_policy_yaml_name(network.file)}"
        )
    if len(names) != network.actions or len(set(names)) != len(names):
        where = "its joint_names" if entry is None else f"{entry.file}: {entry.key}"
        raise ValueError(
            f"{network.actions} actions, but {where} has {len(names)} names ({len(set(names))} that"
            " differ); needed is one for each"
        )
    return names


def _resolve_action_limit_scale_and_offset(
    network: NetworkInterface,
    entry: Entry | None,
    metadata: _Metadata,
    joints: _Joints,
    actuators: tuple[str, ...],
) -> tuple[float | None, tuple[float, ...], tuple[float, ...]]:
    """Return how the network's actions are scaled, from the YAML file or else from the metadata.

    Args:
        network: The sizes of the network.
        entry: The YAML file's entry `action`, or None.
        metadata: The metadata of the ONNX file.
        joints: The joints, whose default positions are the summands unless the YAML file says them.
        actuators: (A,) the actuators' names in the order of the action.

    Returns:
        Three values: the largest action of the network, or None if no file says it, and for each of
        the A actions the factor and the summand that turn it into a command, which are both empty
        if unknown.

    Raises:
        ValueError: The limit of scaled actions is unknown or not allowed.
    """
    fields = {} if entry is None else entry.read_fields((), ("limit", "scale", "offset", "output"))
    scale = metadata.parse_numbers("action_scale", network.actions)
    if "scale" in fields:
        scale = _parse_numbers(fields["scale"], network.actions)
    offset: tuple[float, ...] = ()
    if "offset" in fields:
        offset = _parse_numbers(fields["offset"], network.actions)
        scale = scale or (1.0,) * network.actions
    elif scale:
        offset = joints.get_defaults_of(actuators)
    if "limit" in fields:
        what = f"the largest action of the network, from 1e-6 to {MAX_LIMIT:g}"
        return fields["limit"].read_number(what, 1e-6, MAX_LIMIT), scale, offset
    if limits := metadata.parse_numbers("action_limit", 1):
        if not 1e-6 <= limits[0] <= MAX_LIMIT:
            raise ValueError(f"metadata action_limit: {limits[0]:g} is not 1e-6 to {MAX_LIMIT:g}")
        return limits[0], scale, offset
    if scale:
        raise ValueError(
            "its actions are scaled (action_scale), so they may be larger than 1; say in"
            f" {get_policy_yaml_name(network.file)} which is the largest, as in"
            "  action: {limit: 5.0}"
        )
    return None, scale, offset


def _parse_history(entry: Entry | None) -> HistoryArrangement:
    """Return the arrangement of the newest observations that the YAML file describes.

    Args:
        entry: The file's entry `history`; None: only the newest observation is arranged.
    """
    if entry is None:
        return HistoryArrangement()
    fields = entry.read_fields(("length",), ("by", "newest", "start"))
    length = fields["length"]
    if type(length.value) is not int or not 1 <= length.value <= MAX_HISTORY:
        raise length.make_error(f"ticks, a whole number from 1 to {MAX_HISTORY}")
    choices: dict[str, str] = {}
    for key, allowed in (("by", Order), ("newest", End), ("start", Start)):
        if key in fields:
            if fields[key].value not in get_args(allowed):
                raise fields[key].make_error(" or ".join(get_args(allowed)))
            choices[key] = str(fields[key].value)
    return HistoryArrangement(length.value, **choices)  # type: ignore[arg-type]


def _parse_terms(
    entry: Entry, network: NetworkInterface, joints: _Joints
) -> tuple[ObservationTerm, ...]:
    """Return the terms of the observation that the YAML file lists.

    Args:
        entry: The file's entry `observation`.
        network: The sizes of the network.
        joints: The joints that are observed.
    """
    if not isinstance(entry.value, list) or not entry.value:
        raise entry.make_error("a list of terms, in the order of the network's input")
    if len(entry.value) > MAX_SIZE:
        raise entry.make_error(f"at most {MAX_SIZE} terms")
    return tuple(
        _parse_term(Entry(entry.file, f"{entry.key}[{number}]", value), network, joints)
        for number, value in enumerate(entry.value)
    )


def _parse_term(entry: Entry, network: NetworkInterface, joints: _Joints) -> ObservationTerm:
    """Return one term of the observation that the YAML file lists.

    Args:
        entry: The term's entry in the file.
        network: The sizes of the network.
        joints: The joints that are observed.
    """
    options = ("scale", "offset", "clip", "period_s")
    fields = entry.read_fields((), ("channels", "term", *options))
    if ("channels" in fields) == ("term" in fields):
        raise WiringError(
            entry.file, entry.key, Description(str(sorted(fields))), "either channels or term"
        )
    kind, ids, bases = "channels", (), ()  # type: str, tuple[str, ...], tuple[float, ...]
    if "channels" in fields:
        ids = _parse_names(fields["channels"])
        width = len(ids)
    else:
        kind = str(fields["term"].value)
        if kind not in TERMS:
            near = difflib.get_close_matches(kind, TERMS, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise fields["term"].make_error(f"one of {', '.join(TERMS)}{hint}")
        width = {PREVIOUS: network.actions, PHASE: 2}.get(kind, len(joints.names))
        if kind in (POSITIONS, VELOCITIES):
            ids = joints.make_channel_ids(kind)
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
        period = fields["period_s"].read_number("seconds, from 0.001 to 1e6", 1e-3, 1e6)
    scale = _parse_numbers(fields["scale"], width) if "scale" in fields else (1.0,) * width
    offset = _parse_numbers(fields["offset"], width) if "offset" in fields else (0.0,) * width
    if bases:
        offset = tuple(o - b * s for o, b, s in zip(offset, bases, scale, strict=True))
    clip = (-math.inf, math.inf)
    if "clip" in fields:
        clip = fields["clip"].read_range("[min, max], two finite numbers, the min first", ORDINARY)
    return ObservationTerm(kind, ids, scale, offset, clip, period)


def _make_terms_from_metadata(
    network: NetworkInterface, metadata: _Metadata, joints: _Joints, width: int
) -> tuple[ObservationTerm, ...]:
    """Return the terms of the observation that the metadata names.

    Args:
        network: The sizes of the network.
        metadata: The metadata of the ONNX file.
        joints: The joints that are observed.
        width: The number of inputs that the terms must fill.

    Raises:
        ValueError: The metadata does not name the observations, or does not say how many inputs
            each one has.
    """
    names = metadata.parse_names("observation_names")
    if not names:
        raise ValueError(
            f"does not say what its {network.inputs} inputs are: its metadata has no"
            f" observation_names; list them in {get_policy_yaml_name(network.file)} under"
            " observation"
        )
    known = {one: _make_term_by_name(one, network, joints) for one in names}
    rest = width - sum(term.width for one in names if (term := known[one]) is not None)
    unknown = [one for one in names if known[one] is None]
    each = 1
    if unknown and rest != len(unknown):
        if len(unknown) > 1 or rest < 1:
            raise ValueError(
                f"{width} inputs, but the widths of its observations {', '.join(unknown[:5])} are"
                f" not known ({rest} inputs are left for these {len(unknown)}); list all terms in"
                f" {get_policy_yaml_name(network.file)} under observation"
            )
        each = rest
    terms = []
    for one in names:
        term = known[one]
        if term is None:
            ids = (one,) if each == 1 else tuple(f"{one}.{place}" for place in range(each))
            term = ObservationTerm("channels", ids, (1.0,) * each, (0.0,) * each)
        terms.append(term)
    return tuple(terms)


def _make_term_by_name(
    name: str, network: NetworkInterface, joints: _Joints
) -> ObservationTerm | None:
    """Return the term of an observation with a well-known name, or None if the name is unknown.

    Args:
        name: The name in the metadata, such as "joint_pos".
        network: The sizes of the network.
        joints: The joints that are observed.
    """
    kind = OBSERVATIONS.get(name)
    if kind == PREVIOUS:
        return ObservationTerm(PREVIOUS, (), (1.0,) * network.actions, (0.0,) * network.actions)
    if kind is not None:
        count = len(joints.names)
        offset = tuple(-one for one in joints.defaults) if kind == POSITIONS else (0.0,) * count
        return ObservationTerm("channels", joints.make_channel_ids(kind), (1.0,) * count, offset)
    if name in VECTORS:
        ids = tuple(f"{name}.{axis}" for axis in AXES)
        return ObservationTerm("channels", ids, (1.0,) * 3, (0.0,) * 3)
    return None


def _parse_names(entry: Entry) -> tuple[str, ...]:
    """Return the names that an entry of the YAML file lists; they must differ."""
    names = entry.value
    if not isinstance(names, list) or not names or len(names) > MAX_SIZE:
        raise entry.make_error(_NAMES)
    if not all(isinstance(one, str) and _NAME.fullmatch(one) for one in names):
        raise entry.make_error(_NAMES)
    if len(set(names)) != len(names):
        twice = next(one for one in names if names.count(one) > 1)
        raise WiringError(entry.file, entry.key, Description(f"{twice!r} twice"), _NAMES)
    return tuple(names)


def _parse_numbers(entry: Entry, count: int) -> tuple[float, ...]:
    """Return numbers in the YAML file as a tuple.

    Args:
        entry: A list of numbers, or a single number, which is repeated.
        count: The number of numbers to return.
    """
    what = f"a finite number, or a list of {count} of them"
    values: Sequence[object] = entry.value if isinstance(entry.value, list) else [entry.value]
    if isinstance(entry.value, list) and len(values) != count:
        raise entry.make_error(what)
    found = tuple(
        Entry(entry.file, entry.key, one).read_number(what, -ORDINARY, ORDINARY) for one in values
    )
    return found if isinstance(entry.value, list) else found * count


def _resolve_tick_period_s(entry: Entry | None, metadata: _Metadata) -> float | None:
    """Return the period of the ticks in seconds, or None if no file says it.

    Args:
        entry: The YAML file's entry `step_s`, which has precedence, or None.
        metadata: The metadata of the ONNX file.
    """
    if entry is not None:
        return entry.read_number(_SECONDS, *_SECONDS_BOUNDS)
    found = metadata.parse_numbers("step_s", 1)
    if not found:
        return None
    if not _SECONDS_BOUNDS[0] <= found[0] <= _SECONDS_BOUNDS[1]:
        raise ValueError(f"metadata step_s: {found[0]:g}; allowed are {_SECONDS}")
    return found[0]


def _resolve_task_name(entry: Entry | None, metadata: _Metadata) -> str:
    """Return the name of the task that the network was trained for, or "" if no file says it.

    Args:
        entry: The YAML file's entry `task`, which has precedence, or None.
        metadata: The metadata of the ONNX file.
    """
    return (
        metadata.get_text("task") if entry is None else entry.read_text("the name of a task", _NAME)
    )


def _parse_safetensors_file_name(entry: Entry | None) -> str:
    """Return the name of a ``.safetensors`` file in an entry of the YAML file, or "" for None."""
    if entry is None:
        return ""
    name = entry.read_text("the name of a .safetensors file beside this one", _NAME)
    if not name.endswith(".safetensors") or "/" in name:
        raise entry.make_error("the name of a .safetensors file beside this one")
    return name


def get_policy_yaml_name(onnx_file: str) -> str:
    """Return the name of the YAML file that describes an ONNX file.

    Args:
        onnx_file: The name of the ONNX file.
    """
    return f"{onnx_file.removesuffix('.onnx')}.policy.yaml"
