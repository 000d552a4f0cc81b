"""The state of the live page's wiring panel, and the changes of the wiring it can make.

With a scrambler (the node that disturbs a running robot's readings), a signal is the reading of one
of the robot's sensors, and an input slot is an element of the scrambler's message. Moving a signal
to another slot changes which signal each of the scrambler's slots carries (its order). If the move
is announced, the policy node's parameters are changed too, so that the channels read the slots to
which their signals moved. Without a scrambler an input slot is a channel, a signal is the field
that it reads, and every change is announced.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from an_control.disturbance.signal_routing import NOISE, NOTHING
from an_control.view.schema import SlotWiring

KEPT_CHANGES = 200
"""Maximum number of changes that can be undone."""
_ELEMENT = re.compile(r"position\[(.+)\]")
NO_SCRAMBLER = "the robot has no scrambler: start its simulator with scrambler:=true"
NO_CHANNELS = (
    "the policy's wiring names no single channel that could be moved: it reads them by a wildcard"
)


class RefusedChangeError(ValueError):
    """An error that a requested change of the wiring is not possible; the text says why."""


@dataclass(frozen=True)
class WiringChange:
    """A change of the wiring, as values to set in the scrambler and in the policy node.

    Attributes:
        order: The new signal of each input slot that changes. It is set in the scrambler, because
            that node decides at which slot a sensor's signal arrives.
        parameters: The new value of each parameter of the policy node that changes.
    """

    order: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)


class RewiringPanel:
    """The present wiring of one robot, and the changes that a user of the live page can ask for.

    `set_signals_by_slot` and `set_policy_wiring` set the present state. Methods such as
    `plan_moving_signal_to_slot` and `plan_disconnection` only return a change, which the caller
    carries out. Then `record_change` records it for `plan_undo`.
    """

    def __init__(self) -> None:
        self.order: dict[str, str] | None = None
        """A mapping from each of the scrambler's input slots to its signal; None without a
        scrambler."""
        self._reads: dict[str, tuple[str, str]] = {}
        """A mapping from a channel to a pair: the source and the field that the channel reads."""
        self._first: dict[str, tuple[str, str]] = {}
        self._scrambled = ""
        self._back: list[WiringChange] = []

    def set_signals_by_slot(self, order: Mapping[str, str] | None) -> None:
        """Set which sensor's signal arrives at each input slot at present.

        Args:
            order: The signal of each slot, as the scrambler (the node that mixes up sensors)
                reports it; None if there is no scrambler.
        """
        if (order is None) != (self.order is None):
            self._back = []
        self.order = None if order is None else dict(order)

    def set_policy_wiring(
        self,
        rewiring_parameters: Mapping[str, str],
        scrambled_topic: str = "",
        *,
        node_is_new: bool,
    ) -> None:
        """Set which topic and field each channel of the policy node reads at present.

        Args:
            rewiring_parameters: The values of the node's parameters that rewire it, by name, such
                as `channels.hip_1.field`.
            scrambled_topic: The topic on which the scrambler (the node that mixes up sensors)
                publishes, without its namespace; "" if there is no scrambler.
            node_is_new: Whether the node has just been configured. If so, its wiring is assumed to
                be the one in its wiring file, and earlier changes can no longer be undone.
        """
        reads = {}
        for key, value in rewiring_parameters.items():
            kind, _, rest = key.partition(".")
            channel, _, part = rest.rpartition(".")
            if (kind, part) == ("channels", "field"):
                reads[channel] = (rewiring_parameters.get(f"channels.{channel}.source", ""), value)
        before = self._reads
        self._reads = {one: where for one, where in reads.items() if "*" not in one}
        sources = [
            key.split(".")[1]
            for key, topic in rewiring_parameters.items()
            if key.startswith("sources.") and topic.rpartition("/")[2] == scrambled_topic
        ]
        self._scrambled = sources[0] if scrambled_topic and sources else ""
        if node_is_new:
            self._back = []
        if node_is_new and self._reads != before:
            self._first = dict(self._reads)

    @property
    def signals(self) -> list[str]:
        """The sensors' signals that can be connected to input slots, in the order of the wiring."""
        if self.order is None:
            return list(dict.fromkeys(map(_format_field_label, self._first.values())))
        return self._list_sorted_slots()

    @property
    def slot_wirings(self) -> list[SlotWiring]:
        """The wiring of all input slots, in the order of the wiring file."""
        if self.order is None:
            return [
                SlotWiring(one, _format_field_label(where), one)
                for one, where in self._reads.items()
            ]
        channels = {slot: channel for channel, slot in self._map_channels_to_slots().items()}
        return [
            SlotWiring(slot, self.order[slot], channels.get(slot, slot))
            for slot in self._list_sorted_slots()
        ]

    @property
    def refusal_reason_with_rewiring(self) -> str:
        """Why signals cannot move to other slots with the policy rewired too; "" if they can."""
        slots = self._reads if self.order is None else self._map_channels_to_slots()
        return "" if slots else NO_CHANNELS

    @property
    def refusal_reason_without_rewiring(self) -> str:
        """Why signals cannot move to other slots unless the policy is rewired; "" if they can."""
        return NO_SCRAMBLER if self.order is None else ""

    @property
    def undo_count(self) -> int:
        """The number of changes that can be undone."""
        return len(self._back)

    def plan_moving_signal_to_slot(
        self, signal: str, slot: str, *, announced: bool
    ) -> WiringChange:
        """Return the change that moves a sensor's signal to an input slot.

        If the signal arrives at another slot at present, the two slots exchange their signals.
        Otherwise it replaces the present signal of `slot`.

        Args:
            signal: The signal.
            slot: The input slot.
            announced: Whether the policy node is told and rewired, so that each of its channels
                still reads the same signal.

        Raises:
            RefusedChangeError: The change is not possible.
        """
        before = self._find_signal_of_slot(slot)
        if signal not in self.signals:
            raise RefusedChangeError(f"{signal!r} is not a signal of this robot")
        if before == signal:
            raise RefusedChangeError(f"{slot} carries {signal} already")
        others = [one.slot for one in self.slot_wirings if one.signal == signal]
        if others:
            return self._plan_signal_moves({slot: others[0], others[0]: slot}, announced=announced)
        if self.order is None:
            return WiringChange(parameters=self._make_parameters_to_read_signal(slot, signal))
        return WiringChange({slot: signal})

    def plan_disconnection(self, slot: str) -> WiringChange:
        """Return the change of the wiring that leaves an input slot without a signal.

        Raises:
            RefusedChangeError: The change is not possible.
        """
        return self._plan_signal_replacement(slot, NOTHING)

    def plan_noise_on_slot(self, slot: str) -> WiringChange:
        """Return the change that replaces the signal of an input slot by noise.

        Raises:
            RefusedChangeError: The change is not possible.
        """
        return self._plan_signal_replacement(slot, NOISE)

    def plan_signal_copy(self, signal: str, slot: str) -> WiringChange:
        """Return the change that connects a signal to one more input slot.

        The signal replaces the present one of `slot`, and still arrives at its other slots.

        Args:
            signal: The signal.
            slot: The input slot that also gets the signal.

        Raises:
            RefusedChangeError: The change is not possible.
        """
        if signal not in self.signals:
            raise RefusedChangeError(f"{signal!r} is not a signal of this robot")
        return self._plan_signal_replacement(slot, signal)

    def plan_signal_shuffle(self, rng: random.Random, *, announced: bool) -> WiringChange:
        """Return a change that permutes the signals of all slots at random.

        Args:
            rng: The random generator.
            announced: Whether the policy node is told and rewired, so that each of its channels
                still reads the same signal.

        Raises:
            RefusedChangeError: The change is not possible.
        """
        slots = [one.slot for one in self.slot_wirings]
        if len(slots) < 2:
            raise RefusedChangeError(
                self.refusal_reason_with_rewiring or "there is nothing to shuffle"
            )
        return self._plan_signal_moves(
            dict(zip(slots, rng.sample(slots, len(slots)), strict=True)), announced=announced
        )

    def plan_restoring_file_wiring(self) -> WiringChange:
        """Return the change that restores the wiring of the robot's wiring file."""
        order = {slot: slot for slot, signal in (self.order or {}).items() if signal != slot}
        return WiringChange(order, self._select_changed_parameters(self._first))

    def plan_undo(self) -> WiringChange:
        """Return the change that undoes the last recorded change.

        Raises:
            RefusedChangeError: There is no change to undo.
        """
        if not self._back:
            raise RefusedChangeError("there is no change to undo")
        return self._back[-1]

    def record_change(self, change: WiringChange, reverting_change: WiringChange | None) -> None:
        """Record that a change has been carried out, so that it can be undone.

        Args:
            change: The change.
            reverting_change: The change that undoes `change`. It is what `invert_change` returned
                before `change` was carried out. None if `change` was itself an undo.
        """
        self._back = (
            self._back[:-1]
            if reverting_change is None
            else [*self._back, reverting_change][-KEPT_CHANGES:]
        )
        if self.order is not None:
            self.order.update(change.order)
        for key, value in change.parameters.items():
            channel, _, part = key.removeprefix("channels.").rpartition(".")
            source, path = self._reads[channel]
            self._reads[channel] = (value, path) if part == "source" else (source, value)

    def invert_change(self, change: WiringChange) -> WiringChange:
        """Return the change that undoes a change which is about to be carried out.

        Raises:
            RefusedChangeError: The change names an input slot or channel that the robot no longer
                has.
        """
        now = self.order or {}
        channels = {key.removeprefix("channels.").rpartition(".")[0] for key in change.parameters}
        if gone := (change.order.keys() - now.keys()) | (channels - self._reads.keys()):
            raise RefusedChangeError(f"the robot no longer has {', '.join(sorted(gone))}")
        order = {slot: now[slot] for slot in change.order}
        parameters: dict[str, str] = {}
        for channel in channels:
            parameters |= self._make_channel_parameters(channel, self._reads[channel])
        return WiringChange(order, {key: parameters[key] for key in change.parameters})

    def _plan_signal_moves(
        self, origin_slots: Mapping[str, str], *, announced: bool
    ) -> WiringChange:
        """Return the change that gives some input slots the signals of other slots.

        `origin_slots` has, for each slot that changes, the slot whose present signal it gets. If
        announced, the policy node is rewired too, so that its channels keep their signals.
        """
        if self.order is None:
            if not announced:
                raise RefusedChangeError(NO_SCRAMBLER)
            return WiringChange(
                parameters=self._select_changed_parameters(
                    {one: self._reads[by] for one, by in origin_slots.items()}
                )
            )
        order = {
            slot: self.order[by]
            for slot, by in origin_slots.items()
            if self.order[by] != self.order[slot]
        }
        if not announced:
            return WiringChange(order)
        if self.refusal_reason_with_rewiring:
            raise RefusedChangeError(self.refusal_reason_with_rewiring)
        now = {by: slot for slot, by in origin_slots.items()}
        reads = {
            channel: (self._scrambled, f"position[{now[slot]}]")
            for channel, slot in self._map_channels_to_slots().items()
            if slot in now
        }
        return WiringChange(order, self._select_changed_parameters(reads))

    def _plan_signal_replacement(self, slot: str, signal: str) -> WiringChange:
        """Return the change that gives an input slot another signal."""
        if self.order is None:
            raise RefusedChangeError(NO_SCRAMBLER)
        if self._find_signal_of_slot(slot) == signal:
            raise RefusedChangeError(f"{slot} carries {signal or 'nothing'} already")
        return WiringChange({slot: signal})

    def _find_signal_of_slot(self, slot: str) -> str:
        """Return the signal that an input slot carries."""
        found = next((one.signal for one in self.slot_wirings if one.slot == slot), None)
        if found is None:
            raise RefusedChangeError(f"{slot!r} is not an input slot of this robot")
        return found

    def _make_parameters_to_read_signal(self, channel: str, signal: str) -> dict[str, str]:
        """Return the policy node's parameters that must change so that a channel reads a signal."""
        where = next(one for one in self._first.values() if _format_field_label(one) == signal)
        return self._select_changed_parameters({channel: where})

    def _select_changed_parameters(
        self, new_fields: Mapping[str, tuple[str, str]]
    ) -> dict[str, str]:
        """Return the parameters that must change so that channels read other fields."""
        found: dict[str, str] = {}
        for channel, where in new_fields.items():
            now = self._make_channel_parameters(channel, self._reads.get(channel, where))
            found |= {
                k: v
                for k, v in self._make_channel_parameters(channel, where).items()
                if now[k] != v
            }
        return found

    def _make_channel_parameters(
        self, channel: str, source_and_field: tuple[str, str]
    ) -> dict[str, str]:
        """Return the policy node's parameters that make a channel read a field of a source."""
        return {
            f"channels.{channel}.source": source_and_field[0],
            f"channels.{channel}.field": source_and_field[1],
        }

    def _list_sorted_slots(self) -> list[str]:
        """Return the scrambler's input slots, those in the wiring first, in the wiring's order."""
        order = self.order or {}
        others = sorted(order, key=_make_natural_sort_key)
        return list(dict.fromkeys([*(one for one in self._reads if one in order), *others]))

    def _map_channels_to_slots(self) -> dict[str, str]:
        """Return, for each channel that the scrambler feeds, the input slot that it reads."""
        found = {}
        for channel, (source, path) in self._reads.items():
            element = _ELEMENT.fullmatch(path)
            if element and source == self._scrambled != "":
                found[channel] = element[1]
        return found


def _make_natural_sort_key(name: str) -> list[tuple[str, int]]:
    """Return a sort key that orders numbers in names by value: camera.2.1 before camera.10.1."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)]


def _format_field_label(source_and_field: tuple[str, str]) -> str:
    """Return the text by which the page shows the signal in a field of a source's messages."""
    return f"{source_and_field[0]}: {source_and_field[1]}"
