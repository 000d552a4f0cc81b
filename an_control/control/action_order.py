"""Do a wiring's names fit a model's? Asked at configure, for each new model and by `check`.

A model file may name the channels and actuators of the task that it was trained for. Without names
there is nothing to compare: then the order in the wiring counts, as it does for actuators that the
model only numbers (``action.0``, ``action.1``, ...).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from an_control.policy import MlpSizes, Model
from an_control.wiring import CommandConfig, Wiring, WiringError
from an_control.wiring.checked_yaml import Missing, Shown

SHOWN = 5
"""Names that one sentence lists."""
_NUMBERED = re.compile(r"action\.\d+")


class ChannelNames(NamedTuple):
    """What differs between the channels of a wiring and of a model."""

    unknown: tuple[str, ...]
    """Ids that the model does not know."""
    missing: tuple[str, ...]
    """The model's ids that no channel of the wiring has or may have."""
    of: int
    """How many channels the model names; 0 where it names none."""


class ActionOrder:
    """From an action in the model's order to the actuators in the wiring's order, and back.

    Raises WiringError where the model's actuators are others than the wiring's.
    """

    def __init__(self, wiring: Wiring, model_path: str, model: Model) -> None:
        self._command: CommandConfig = wiring.command
        places = _places(wiring, model_path, model)
        self.places: np.ndarray | None = None
        """(A,) of each actuator of the wiring its place in the action; None where all agree."""
        if places is not None and places != list(range(len(places))):
            self.places = np.array(places, np.intp)

    def command(self, action: np.ndarray) -> np.ndarray:
        """The values (A,) in the wiring's order and units of an action (A,)."""
        return self._command.command(action if self.places is None else action[self.places])

    def action(self, values: np.ndarray) -> np.ndarray:
        """The action (A,) that means these values (A,); beyond +-1 where no action does."""
        ordered = self._command.action(values)
        if self.places is None:
            return ordered
        action = np.empty_like(ordered)
        action[self.places] = ordered
        return action


def _places(wiring: Wiring, model_path: str, model: Model) -> list[int] | None:
    names, trained = wiring.command.names, actuators_of(model)
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
    others = Shown(listed(name for name in names if name not in trained))
    lacking = listed(name for name in trained if name not in names)
    allowed = f"the actuators of {model_path}, in any order; {lacking} has no actuator here"
    raise WiringError(wiring.file, "command.actuators", others, allowed)


def actuators_of(model: Model) -> Sequence[str]:
    """The names (A,) in the action's order; empty where the model names none."""
    names: Sequence[str] = model.task.get("actuators", ())
    return names if len(names) == model.sizes.actions else ()


def compare_channels(wiring: Wiring, ids: Sequence[str], model: Model) -> ChannelNames:
    """Compare ids (N,), those of a table of this wiring, with the model's channels.

    A wildcard may still find any id that fits it.
    """
    trained: Sequence[str] = model.task.get("channels", ())
    if not trained:
        return ChannelNames((), (), 0)
    known, present = set(trained), set(ids)
    wildcards = [one.id for one in wiring.channels if "*" in one.id and one.image is None]
    return ChannelNames(
        tuple(id_ for id_ in ids if id_ not in known),
        tuple(id_ for id_ in trained if id_ not in present and not _fits(id_, wildcards)),
        len(trained),
    )


def check_channels(wiring: Wiring, ids: Sequence[str], model_path: str, model: Model) -> None:
    """WiringError where an ordered model would lack channels, or get some it does not know."""
    if not isinstance(model.sizes, MlpSizes):
        return
    found = compare_channels(wiring, ids, model)
    if found.unknown:
        allowed = (
            f"the channels of {model_path}, an ordered model: {listed(model.task['channels'])}"
        )
        raise WiringError(wiring.file, "channels", Shown(listed(found.unknown)), allowed)
    if found.missing:
        without = Missing(listed(found.missing))
        allowed = f"all {found.of} channels of {model_path}, an ordered model"
        raise WiringError(wiring.file, "channels", without, allowed)


def notes(found: ChannelNames, model_path: str, *, watched: bool) -> tuple[str, ...]:
    """In words, what differs and what it means; `watched`: an identity monitor is on."""
    said = []
    if found.unknown:
        monitor = "; the identity monitor does not watch them" if watched else ""
        said.append(
            f"channels that {model_path} does not know: {listed(found.unknown)}; the policy reads"
            f" them as additional channels{monitor}"
        )
    if found.missing:
        monitor = "; the identity monitor counts them as missing" if watched else ""
        said.append(
            f"{len(found.missing)} of the {found.of} channels of {model_path} are not wired:"
            f" {listed(found.missing)}; the policy acts without them{monitor}"
        )
    return tuple(said)


def unread_sources(wiring: Wiring) -> dict[str, str]:
    """Return a note on each source that is subscribed and that nothing reads, by its name."""
    read = {channel.source for channel in wiring.channels}
    read |= {measured.source for measured in wiring.command.measured}
    todo = f"add one, or take the source out of {wiring.file}"
    return {
        source.name: f"source {source.name!r} feeds no channel: {todo}"
        for source in wiring.sources
        if source.name not in read
    }


def listed(names: Iterable[str]) -> str:
    """Names in one phrase, the first few where there are many."""
    every = tuple(names)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more


def _fits(id_: str, wildcards: Iterable[str]) -> bool:
    for wildcard in wildcards:
        before, _, after = wildcard.partition("*")
        if len(id_) > len(before + after) and id_.startswith(before) and id_.endswith(after):
            return True
    return False
