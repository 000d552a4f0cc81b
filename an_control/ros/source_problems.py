"""What is wrong with a source although its messages come, in one set of words.

Diagnostics, the log and `an-control check --live` say it alike: what was seen, what was expected,
and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

from an_control.wiring import SourceConfig

RATE_RATIO = 1.25
"""How many times slower or faster than it should a source may send before it is told."""
NEWS_S = 1.0
"""Sources whose messages may be older than this send when there is news, and not at a rate."""
CLOCK_S = 1.0
"""By how much stamps may differ from the time at which their messages come."""
SHOWN = 8
"""Channels that one sentence names."""


def wrong_rate(config: SourceConfig, rate_hz: float, control_hz: float) -> str:
    """Return what to say of a source that sends at another rate than it should, else ""."""
    wanted_hz = config.rate_hz or control_hz
    if not 0.0 < config.max_age_s <= NEWS_S:
        return ""
    if wanted_hz / RATE_RATIO <= rate_hz <= wanted_hz * RATE_RATIO:
        return ""
    if config.rate_hz is not None:
        return f"{rate_hz:.3g} messages a second, where its rate_hz is {wanted_hz:.3g}"
    what = "some ticks have no new reading of it"
    if rate_hz > wanted_hz:
        what = "each tick reads its newest message"
    return (
        f"{rate_hz:.3g} messages a second, where the policy runs at {wanted_hz:.3g} Hz: {what}; if"
        f" that is meant, write rate_hz: {rate_hz:.3g} into the source"
    )


def wrong_clock(ahead_s: float) -> str:
    """Return what to say of stamps that are ahead of the time at which they come, else ""."""
    if abs(ahead_s) <= CLOCK_S:
        return ""
    where = "ahead of" if ahead_s > 0.0 else "behind"
    return (
        f"its stamps are {abs(ahead_s):.1f} s {where} this node's clock: set the clock of the"
        " machine that sends it, or use_sim_time in both or in neither"
    )


def rival_senders(one: str, other: str, channels: Sequence[str]) -> str:
    """Return what to say of two nodes that send the same channels."""
    shown = ", ".join(channels[:SHOWN]) + ", ..." * (len(channels) > SHOWN)
    who = f"two publishers of {one} both send" if one == other else f"{one} and {other} both send"
    return f"{who} {shown}: stop one of them, or give it a topic of its own"
