"""What is done to a policy while it is evaluated, as one word list: `100,announced,noise=5`.

The protocols of the paper (Tang & Ha 2021: shuffled at the reset, every K steps, noise channels)
and of the follow-up study: what becomes of the neurons' state when the signals move.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from an_control.disturbance import Change, DisturbanceSettings, Shuffle
from an_control.disturbance.settings import ALLOWED_WORDS, WORDS, split_words
from an_control.policy import Monitor

Memory = Literal["kept", "reset", "zeroed"]
Part = Literal["attention", "queries", "action"]
"""Of a policy, which may be left out (`an_control.learning.evaluation.ablation`)."""
OWN_WORDS = (
    f"{', '.join(get_args(Memory))}, until=STEP, monitor={'|'.join(get_args(Monitor))},"
    f" without={'|'.join(get_args(Part))}, background=NAME"
)


@dataclass(frozen=True)
class Protocol:
    """A disturbance of the readings, and what becomes of the neurons' state.

    memory  kept    nothing is done to it: announced it goes with its channel's id, unannounced it
                    stays in its slot
            reset   it is cleared whenever signals move on the way: told when, but not what
            zeroed  it is cleared at every step
    until   the step from which on nothing moves any more, None = never
    monitor what watches for it, None = what the model says
    """

    disturbance: DisturbanceSettings
    memory: Memory = "kept"
    until: int | None = None
    monitor: Monitor | None = None
    without: Part | None = None
    """The part of the policy that is left out."""
    background: str = ""
    """The picture behind what a camera shows, where the environment has several."""

    def __str__(self) -> str:
        """The text that `parse` takes; a standard deviation in use is in it."""
        names = ("until", "monitor", "without", "background")
        more = {name: getattr(self, name) for name in names}
        return ",".join(
            [
                str(self.disturbance),
                *(f"{name}={value}" for name, value in more.items() if value not in (None, "")),
                *([] if self.memory == "kept" else [self.memory]),
            ]
        )

    @property
    def schedule(self) -> tuple[Change, ...]:
        """The changes of the disturbance in each episode."""
        return () if self.until is None else (Change(self.until, {"shuffle": Shuffle()}),)

    @classmethod
    def parse(cls, text: str) -> Protocol:
        """When signals move, then more words; ValueError naming the word and what is allowed.

        `none`, `delay=1`, `reset,noise=5`, `100,announced`, `25,swap=2,monitor=off`,
        `reset,without=attention`, `reset,background=marble`.
        """
        shuffle, words = split_words(text)
        protocol = cls(DisturbanceSettings(shuffle))
        for word in words:
            protocol = protocol._with(word)
        return protocol

    def _with(self, word: str) -> Protocol:
        name, _, value = word.partition("=")
        if name == "background" and value:
            return replace(self, background=value)
        if word in get_args(Memory):
            return replace(self, memory=cast(Memory, word))
        if name == "monitor" and value in get_args(Monitor):
            return replace(self, monitor=cast(Monitor, value))
        if name == "without" and value in get_args(Part):
            return replace(self, without=cast(Part, value))
        if name == "until" and value.isdecimal():
            return replace(self, until=int(value))
        if name in WORDS:
            return replace(self, disturbance=self.disturbance.with_word(word))
        raise ValueError(f"protocol: {word!r} (allowed: {ALLOWED_WORDS}, {OWN_WORDS})")

    def forgets(self, rewired: bool) -> bool:
        """Whether the neurons' state is cleared at a step; `rewired` says if signals moved."""
        return self.memory == "zeroed" or (self.memory == "reset" and rewired)
