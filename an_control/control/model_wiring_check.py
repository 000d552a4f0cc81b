"""Check whether a wiring fits a model: channels, actuators, images and control rate.

The wiring is the YAML file that connects a robot's topics to the policy. A model file may name the
channels and actuators of its task. Without such names nothing is compared, and the first actuator
of the wiring is the first of the model, and so on. The same holds for actuators that a model only
numbers (``action.0``, ``action.1``, ...). The checks run when the node is configured, for each new
model, and in `an-control check`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from an_control.monitor.forward_model import NETWORKS
from an_control.policy import Model, OrderedSizes, VisionSizes
from an_control.policy.onnx_layout import get_policy_yaml_name
from an_control.wiring import Wiring, WiringError
from an_control.wiring.checked_yaml import Description, MissingItem

SHOWN = 5
"""The largest number of names that one sentence lists."""
RATE_TOLERANCE = 0.1
"""The share by which the wiring's rate may differ from the rate that the model was trained at."""
_NUMBERED = re.compile(r"action\.\d+")


class ChannelDifferences(NamedTuple):
    """The differences between the channel ids of a wiring and of a model.

    Attributes:
        unknown: The ids in the wiring that the model does not know.
        missing: The ids in the model that the wiring lacks and that none of its wildcards can
            match.
        model_total: The number of channels that the model names; 0 if it names none.
    """

    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    model_total: int


def check_wiring_fits_model(
    wiring: Wiring, ids: Sequence[str], model_path: str, model: Model
) -> None:
    """Check that the channels and the actuators of a wiring fit a model.

    There must be one actuator for each element of the model's action, with the same name if the
    model names its actuators. The channels must be of the right kind: numbers or image patches. A
    model that needs its channels in a fixed order needs exactly the channels that it was trained
    with.

    Args:
        wiring: The wiring: which topics feed which channels of the policy.
        ids: The ids (N,) of the wiring's channels, with wildcards expanded.
        model_path: The model file, for error texts.
        model: The model.

    Raises:
        WiringError: The wiring does not fit the model.
    """
    check_channel_kind(wiring, model_path, model)
    map_actuators_to_action_indices(wiring, model_path, model)
    check_channels_of_fixed_order_model(wiring, ids, model_path, model)


def explain_control_rate_mismatch(wiring: Wiring, model: Model) -> str:
    """Return why a model should not run at the wiring's control rate, or "" if it may.

    The rate may differ by at most 10 % from that of the training. If the latter is unknown, any
    rate may be used.
    """
    trained_s = model.task.step_s
    if not trained_s or abs(1.0 / wiring.rate_hz / trained_s - 1.0) <= RATE_TOLERANCE:
        return ""
    return (
        f"{wiring.file}: rate_hz: {wiring.rate_hz:g}, but the model was trained at"
        f" {1.0 / trained_s:g} Hz (allowed: a difference of 10%; more with the parameter"
        " check_rate false, which is --no-check-rate of `an-control run`)"
    )


def describe_all_zero_weights(model_path: str, model: Model) -> str:
    """Return a warning if all weights of a model's policy are 0, else "".

    For an ONNX model, whose weights are not read, the result is "".

    Args:
        model_path: The model file, for the text.
        model: The model.
    """
    own = [array for name, array in model.arrays.items() if not name.startswith(NETWORKS)]
    if not own or any(array.any() for array in own):
        return ""
    return (
        f"{model_path}: all weights of its policy are 0, so its command never changes; copy the"
        " file again, or train another"
    )


def describe_ramp_longer_than_trained(ramp_s: float, model_path: str, model: Model) -> str:
    """Return a warning if a ramp is longer than any in the model's training, else "".

    Args:
        ramp_s: Seconds in which commands change from the safe command to the policy's.
        model_path: The model file, for the text.
        model: The model.
    """
    trained_s = model.task.ramp_s
    if ramp_s <= trained_s:
        return ""
    return (
        f"ramp_s: {ramp_s:g} s, but {model_path} was trained with up to"
        f" {trained_s:g} s: the robot may not start to move"
    )


def has_discrete_action(model: Model) -> bool:
    """Return whether the model's action is one of several choices, such as buttons of a game."""
    return bool(getattr(model.sizes, "choice", False))


def check_channel_kind(wiring: Wiring, model_path: str, model: Model) -> None:
    """Check that the wiring's channels are of the kind that the model needs: images or numbers.

    Args:
        wiring: The wiring: which topics feed which channels of the policy.
        model_path: The model file, for error texts.
        model: The model.

    Raises:
        WiringError: The channels are of the wrong kind, or the images have another patch size or
            number of frames.
    """
    images, file = wiring.images, wiring.file
    sizes = model.sizes
    if not isinstance(sizes, VisionSizes):
        if images:
            allowed = f"fields of numbers, which {model_path} reads"
            raise WiringError(file, "channels", Description("images"), allowed)
        return
    if not images:
        allowed = f"images, whose patches {model_path} reads"
        raise WiringError(file, "channels", Description("fields of numbers"), allowed)
    for name in ("patch", "stack"):
        if getattr(images[0], name) != getattr(sizes, name):
            allowed = f"{getattr(sizes, name)}, which {model_path} reads"
            key = f"channels.{wiring.channels[0].id}.image.{name}"
            raise WiringError(file, key, getattr(images[0], name), allowed)


def map_actuators_to_action_indices(
    wiring: Wiring, model_path: str, model: Model
) -> list[int] | None:
    """Return, for each of the wiring's A actuators, its index in the model's action.

    Args:
        wiring: The wiring: which topics feed which channels of the policy.
        model_path: The model file, for error texts.
        model: The model.

    Returns:
        The indices (A,). None if the model names no actuators; the wiring's order is then the
        model's.

    Raises:
        WiringError: The model and the wiring do not have the same actuators.
    """
    names, trained = wiring.command.names, get_actuator_names(model)
    if len(names) != model.sizes.actions:
        raise WiringError(
            wiring.file,
            "command.actuators",
            len(names),
            f"{model.sizes.actions} actuators, as many as {model_path} has actions",
        )
    if not trained:
        return None
    if set(names) == set(trained):
        return [trained.index(name) for name in names]
    if all(map(_NUMBERED.fullmatch, trained)):
        return None
    others = Description(join_names_shortened(name for name in names if name not in trained))
    lacking = join_names_shortened(name for name in trained if name not in names)
    allowed = f"the actuators of {model_path}, in any order; {lacking} has no actuator here"
    raise WiringError(wiring.file, "command.actuators", others, allowed)


class ActionCommandConverter:
    """A converter between actions in the model's actuator order and commands in the wiring's order.

    An action has one value from -1 to 1 for each actuator, a command one value in physical units.

    Args:
        wiring: The robot's configuration, which names its A actuators.
        model_path: The model file, for error texts.
        model: The model, which may name its actuators too.

    Raises:
        WiringError: The model and the wiring do not have the same actuators.
    """

    def __init__(self, wiring: Wiring, model_path: str, model: Model) -> None:
        self._command = wiring.command
        places = map_actuators_to_action_indices(wiring, model_path, model)
        self.places: np.ndarray | None = None
        """(A,) for each actuator of the wiring, its index in the action; None if the model's and
        the wiring's orders are equal."""
        if places is not None and places != list(range(len(places))):
            self.places = np.array(places, np.intp)

    def convert_to_command(self, action: np.ndarray) -> np.ndarray:
        """Convert an action (A,) to a command (A,) in the wiring's order and in physical units."""
        return self._command.convert_to_command(
            action if self.places is None else action[self.places]
        )

    def convert_to_action(self, command_values: np.ndarray) -> np.ndarray:
        """Convert a command (A,) back to the action (A,) that produces it.

        A value outside [-1, 1] means that no action produces this command.
        """
        ordered = self._command.convert_to_action(command_values)
        if self.places is None:
            return ordered
        action = np.empty_like(ordered)
        action[self.places] = ordered
        return action


def describe_action_scale_differences(
    wiring: Wiring, model_path: str, model: Model
) -> tuple[str, ...]:
    """Return a sentence for each actuator whose scale or offset differs from the model file's.

    Scale and offset convert an action to a command in physical units. A model file names them only
    if it was converted from another framework. For other models the result is ().
    """
    layout = None if model.network is None else model.network.layout
    if layout is None or not layout.action_scale:
        return ()
    said = []
    for one in wiring.command.actuators:
        if one.name not in layout.actuators:
            continue
        place = layout.actuators.index(one.name)
        scale, offset = layout.limit * layout.action_scale[place], layout.action_offset[place]
        if not (math.isclose(one.scale, scale, rel_tol=1e-3) and abs(one.offset - offset) < 1e-3):
            said.append(
                f"{wiring.file}: command.actuators.{one.name}: scale {one.scale:g}, offset"
                f" {one.offset:g}, but {model_path} says scale {scale:g} (limit {layout.limit:g} x"
                f" action_scale {layout.action_scale[place]:g}), offset {offset:g}; where the"
                " command is in other units, leave out action_scale"
            )
    return tuple(said)


def describe_assumed_action_limit(model_path: str, model: Model) -> str:
    """Return a note if no file gives the limit of an ONNX model's actions, else "".

    A limit of -1..1 is then assumed. The note says how to name the true limit in a file.
    """
    if model.network is None or not model.network.layout.limit_is_assumed:
        return ""
    return (
        f"no file says how large the actions of {model_path} may be: those beyond 1 are cut off;"
        " if it was trained with larger ones, name the largest in"
        f" {get_policy_yaml_name(model_path)}, as in  action: {{limit: 5.0}}"
    )


def get_actuator_names(model: Model) -> Sequence[str]:
    """Return the actuators' names in the order of the model's action, or () if they have none."""
    names: Sequence[str] = model.task.actuators
    return names if len(names) == model.sizes.actions else ()


def compare_wired_with_trained_channels(
    wiring: Wiring, ids: Sequence[str], model: Model
) -> ChannelDifferences:
    """Compare the channel ids of a wiring with those that the model was trained with.

    A model's id that matches a wildcard in the wiring does not count as missing. An id that matches
    a wildcard of the model, which a random model takes from a wiring, does not count as unknown.

    Args:
        wiring: The wiring: which topics feed which channels of the policy.
        ids: The ids (N,) of the wiring's channels that are present now.
        model: The model.

    Returns:
        The differences; there are none if the model names no channels.
    """
    trained: Sequence[str] = model.task.channels
    if not trained:
        return ChannelDifferences((), (), 0)
    known, present = set(trained), set(ids)
    wildcards = [one.id for one in wiring.channels if "*" in one.id and one.image is None]
    trained_wildcards = [id_ for id_ in trained if "*" in id_]
    return ChannelDifferences(
        tuple(
            id_
            for id_ in ids
            if id_ not in known and not _matches_any_wildcard(id_, trained_wildcards)
        ),
        tuple(
            id_
            for id_ in trained
            if id_ not in present and not _matches_any_wildcard(id_, wildcards)
        ),
        len(trained),
    )


def check_channels_of_fixed_order_model(
    wiring: Wiring, ids: Sequence[str], model_path: str, model: Model
) -> None:
    """Check that the wiring has exactly the channels of a model whose inputs have a fixed order.

    The wiring may list them in any order, because they are matched by id.

    Args:
        wiring: The wiring: which topics feed which channels of the policy.
        ids: The ids (N,) of the wiring's channels.
        model_path: The model file, for error texts.
        model: The model; one that takes its channels in any order is not checked.

    Raises:
        WiringError: A channel is missing, or the model does not know it.
    """
    if not isinstance(model.sizes, OrderedSizes):
        return
    found = compare_wired_with_trained_channels(wiring, ids, model)
    if found.unknown:
        known = join_names_shortened(model.task.channels)
        allowed = f"the channels of {model_path}, an ordered model: {known}"
        raise WiringError(
            wiring.file, "channels", Description(join_names_shortened(found.unknown)), allowed
        )
    if found.missing:
        without = MissingItem(join_names_shortened(found.missing))
        allowed = f"all {found.model_total} channels of {model_path}, an ordered model"
        raise WiringError(wiring.file, "channels", without, allowed)


def describe_channel_differences(
    differences: ChannelDifferences, model_path: str, *, monitor_is_on: bool
) -> tuple[str, ...]:
    """Return sentences on how a wiring's channels differ from the model's, and on the consequences.

    Args:
        differences: The differences, as `compare_wired_with_trained_channels` returns them.
        model_path: The model file, for the text.
        monitor_is_on: Whether the identity monitor, which detects rewired sensors, is on.
    """
    said = []
    if differences.unknown:
        monitor = "; the identity monitor does not watch them" if monitor_is_on else ""
        said.append(
            f"channels that {model_path} does not know:"
            f" {join_names_shortened(differences.unknown)};"
            f" the policy reads them as additional channels{monitor}"
        )
    if differences.missing:
        monitor = "; the identity monitor counts them as missing" if monitor_is_on else ""
        said.append(
            f"{len(differences.missing)} of the {differences.model_total} channels of {model_path}"
            f" are not wired: {join_names_shortened(differences.missing)}; the policy acts"
            f" without them{monitor}"
        )
    return tuple(said)


def describe_sources_without_channel(wiring: Wiring) -> dict[str, str]:
    """Return a note for each topic in the wiring that feeds no channel of the policy.

    A topic that only feeds the measured positions of actuators gets no note.

    Returns:
        A mapping from the name of the source (the topic's entry in the wiring) to the note.
    """
    read = {channel.source for channel in wiring.channels}
    read |= {measured.source for measured in wiring.command.measured_configs}
    todo = f"add one, or take the source out of {wiring.file}"
    return {
        source.name: f"source {source.name!r} feeds no channel: {todo}"
        for source in wiring.sources
        if source.name not in read
    }


def join_names_shortened(names: Iterable[str]) -> str:
    """Join names with commas; after five names (`SHOWN`) say only how many more there are."""
    every = tuple(names)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more


def _matches_any_wildcard(id_: str, wildcards: Iterable[str]) -> bool:
    """Return whether an id matches one of these wildcards, such as ``leg_*.position``."""
    for wildcard in wildcards:
        before, _, after = wildcard.partition("*")
        if len(id_) > len(before + after) and id_.startswith(before) and id_.endswith(after):
            return True
    return False
