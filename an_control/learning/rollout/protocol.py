"""What is done to a policy while it is evaluated, as one word list: `100,announced,noise=5`.

The protocols of the paper (Tang & Ha 2021: shuffled at the reset, every K steps, noise channels)
and of the follow-up study: what becomes of the neurons' state when the contents move.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from an_control.disturbance import Change, DisturbanceSettings, Shuffle
from an_control.policy import Monitor

Memory = Literal["kept", "reset", "zeroed"]
NUMBERS = {
    "noise": ("noise_channels", int),
    "noise-sd": ("noise_sd", float),
    "copies": ("copies", int),
    "drop": ("drop", float),
    "freeze": ("freeze", float),
    "delay": ("delay", int),
    "jitter": ("jitter", float),
    "swap": ("swap", int),
}
SCRAMBLINGS = (
    f"none, reset, K or reset+K, then announced, {', '.join(f'{name}=NUMBER' for name in NUMBERS)}"
)
ALLOWED = (
    "none, reset, K or reset+K, then announced, a memory of "
    f"{', '.join(get_args(Memory))}, {', '.join(f'{name}=NUMBER' for name in NUMBERS)},"
    f" until=STEP, monitor={'|'.join(get_args(Monitor))}, background=NAME"
)


@dataclass(frozen=True)
class Protocol:
    """A scrambling of the readings, and what becomes of the neurons' state.

    memory  kept    nothing is done to it: announced it goes with its channel's id, unannounced it
                    stays in its slot
            reset   it is cleared whenever contents move on the way: told when, but not what
            zeroed  it is cleared at every step
    until   the step from which on nothing moves any more, None = never
    monitor what watches for it, None = what the model says
    """

    disturbance: DisturbanceSettings
    memory: Memory = "kept"
    until: int | None = None
    monitor: Monitor | None = None
    background: str = ""
    """The picture behind what a camera shows, where the environment has several."""

    @property
    def schedule(self) -> tuple[Change, ...]:
        """The changes of the scrambling in each episode."""
        return () if self.until is None else (Change(self.until, {"shuffle": Shuffle()}),)

    @classmethod
    def parse(cls, text: str) -> Protocol:
        """When contents move, then further words; ValueError naming the word and what is allowed.

        `none`, `reset,noise=5`, `100,announced`, `25,swap=2,monitor=off`,
        `reset,background=marble`.
        """
        when, *words = (word.strip() for word in text.split(","))
        protocol = cls(DisturbanceSettings(Shuffle.parse(when), noise_sd=1.0))
        for word in words:
            protocol = protocol._with(word)
        return protocol

    @classmethod
    def parse_disturbance(cls, text: str) -> DisturbanceSettings:
        """The same for what is done to the readings alone: `reset,noise=5,copies=5`."""
        protocol = cls.parse(text)
        if protocol != cls(protocol.disturbance):
            raise ValueError(f"shuffle: {text!r} (allowed: {SCRAMBLINGS})")
        return protocol.disturbance

    def _with(self, word: str) -> Protocol:
        name, _, number = word.partition("=")
        if name == "background" and number:
            return replace(self, background=number)
        if word in get_args(Memory):
            return replace(self, memory=cast(Memory, word))
        if name == "monitor" and number in get_args(Monitor):
            return replace(self, monitor=cast(Monitor, number))
        if name == "until" and number.isdecimal():
            return replace(self, until=int(number))
        if word == "announced":
            return replace(self, disturbance=replace(self.disturbance, announce=True))
        try:
            field, kind = NUMBERS[name]
            value = kind(number)
        except (KeyError, ValueError):
            raise ValueError(f"protocol: {word!r} (allowed: {ALLOWED})") from None
        changes: dict[str, int | float] = {field: value}
        return replace(self, disturbance=replace(self.disturbance, **changes))  # type: ignore[arg-type]

    def forgets(self, rewired: bool) -> bool:
        """Whether the neurons' state is cleared at a step; `rewired` says if contents moved."""
        return self.memory == "zeroed" or (self.memory == "reset" and rewired)


def words(scrambling: DisturbanceSettings) -> str:
    """The text that `Protocol.parse_disturbance` takes."""
    plain = Protocol.parse(str(scrambling.shuffle)).disturbance
    found = [str(scrambling.shuffle), *(["announced"] if scrambling.announce else [])]
    for name, (field, _) in NUMBERS.items():
        value = getattr(scrambling, field)
        if value != getattr(plain, field) and (field != "noise_sd" or scrambling.noise_channels):
            found.append(f"{name}={value:g}")
    return ",".join(found)
