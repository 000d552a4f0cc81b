"""Evaluation protocols: a disturbance with settings of the policy, as a text.

`100,announced,noise=5`, for example, permutes all signals every 100 steps, tells the policy, and
adds 5 noise channels. The protocols cover those of the paper (Tang & Ha 2021: shuffled at the
reset, every K steps, noise channels) and of a follow-up study, which asks what should happen to the
sensory neurons' state when signals are permuted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from an_control.disturbance import DisturbanceSettings, ScheduledChange, Shuffle
from an_control.disturbance.settings import ALLOWED_WORDS, WORDS, parse_shuffle_and_other_words
from an_control.policy import Monitor

StateAtPermutation = Literal["kept", "reset", "zeroed"]
RemovablePart = Literal["attention", "queries", "action"]
"""Part of a policy that can be removed (`an_control.learning.evaluation.evaluate`)."""
OWN_WORDS = (
    f"{', '.join(get_args(StateAtPermutation))}, until=STEP, monitor={'|'.join(get_args(Monitor))},"
    f" without={'|'.join(get_args(RemovablePart))}, background=NAME"
)


@dataclass(frozen=True)
class EvaluationProtocol:
    """Conditions of an evaluation: how episodes are disturbed, and what is changed in the policy.

    Attributes:
        disturbance: Disturbance of readings, commands and robot.
        state_at_permutation: What happens to the states of the sensory neurons (one network per
            channel) when signals are permuted. "kept": each state follows its channel to the new
            input slot if the permutation is announced, otherwise it stays in its input slot.
            "reset": all states are cleared at each permutation. "zeroed": all states are cleared at
            every step.
        until: Step after which signals are not permuted any more; None for never.
        monitor: Setting of the identity monitor, which detects permuted signals; None for the
            setting in the model file.
        without: Part that is removed from the policy: "attention", "queries" or "action"; None for
            none.
        background: Name of the background of a camera's image, if the environment has several.
    """

    disturbance: DisturbanceSettings
    state_at_permutation: StateAtPermutation = "kept"
    until: int | None = None
    monitor: Monitor | None = None
    without: RemovablePart | None = None
    background: str = ""

    def __str__(self) -> str:
        """Return the protocol as a text that `parse` reads."""
        names = ("until", "monitor", "without", "background")
        more = {name: getattr(self, name) for name in names}
        return ",".join(
            [
                str(self.disturbance),
                *(f"{name}={value}" for name, value in more.items() if value not in (None, "")),
                *([] if self.state_at_permutation == "kept" else [self.state_at_permutation]),
            ]
        )

    @property
    def schedule(self) -> tuple[ScheduledChange, ...]:
        """Return the changes of the disturbance during an episode, each with its step number.

        There is at most one change: from the step `until` on, signals are not permuted any more.
        """
        return () if self.until is None else (ScheduledChange(self.until, {"shuffle": Shuffle()}),)

    @classmethod
    def parse(cls, text: str) -> EvaluationProtocol:
        """Parse a protocol from words that are separated by commas.

        The first word may say when signals are permuted: `reset` (at the start of each episode), a
        number such as `100` (every 100 steps), or `none` (never). Without such a word they are
        never permuted. All other words are settings:

        - of the disturbance, such as `announced`, `noise=5`, `delay=1` and `swap=2`;
        - of this class, such as `monitor=off`, `without=attention` and `background=marble`.

        >>> EvaluationProtocol.parse("100,announced,noise=5").disturbance.shuffle.every
        100

        Raises:
            ValueError: A word is not known; the message names it and the allowed words.
        """
        if text.partition(",")[0].strip() in ("kept", "zeroed"):  # "reset" is a shuffle there
            text = f"none,{text}"
        shuffle, words = parse_shuffle_and_other_words(text)
        protocol = cls(DisturbanceSettings(shuffle))
        for word in words:
            protocol = protocol._copy_with_option(word)
        return protocol

    def _copy_with_option(self, word: str) -> EvaluationProtocol:
        """Return a copy in which one option is set by a word such as `monitor=off`.

        Raises:
            ValueError: The word is not known.
        """
        name, _, value = word.partition("=")
        if name == "background" and value:
            return replace(self, background=value)
        if word in get_args(StateAtPermutation):
            return replace(self, state_at_permutation=cast(StateAtPermutation, word))
        if name == "monitor" and value in get_args(Monitor):
            return replace(self, monitor=cast(Monitor, value))
        if name == "without" and value in get_args(RemovablePart):
            return replace(self, without=cast(RemovablePart, value))
        if name == "until" and value.isdecimal():
            return replace(self, until=int(value))
        if name in WORDS:
            return replace(self, disturbance=self.disturbance.with_setting_from_text(word))
        raise ValueError(f"protocol: {word!r} (allowed: {ALLOWED_WORDS}, {OWN_WORDS})")

    def should_clear_state(self, rewired: bool) -> bool:
        """Return whether to clear the state of the policy's sensory neurons before a step.

        The attribute `state_at_permutation` decides.

        Args:
            rewired: Whether signals were permuted before this step.
        """
        return self.state_at_permutation == "zeroed" or (
            self.state_at_permutation == "reset" and rewired
        )
