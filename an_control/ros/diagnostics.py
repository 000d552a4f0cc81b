"""What goes to /diagnostics once a second: the policy, the gate, and each source."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from an_control.ros.controller import Controller
from an_control.wiring import SourceStatus

KEPT_TICKS = 1024


class TickTimes:
    """How long the newest ticks took, in seconds."""

    def __init__(self) -> None:
        self._durations_s = np.zeros(KEPT_TICKS)
        self.count = 0

    def add(self, duration_s: float) -> None:
        self._durations_s[self.count % KEPT_TICKS] = duration_s
        self.count += 1

    def percentile_us(self, share: float) -> float:
        """The duration that `share` percent of the newest ticks stayed below, in microseconds."""
        if not self.count:
            return 0.0
        return float(np.percentile(self._durations_s[: self.count], share)) * 1e6


def report(
    name: str,
    active: bool,
    controller: Controller,
    ticks: TickTimes,
    topics: dict[str, str],
    now_ns: int,
) -> DiagnosticArray:
    """The statuses of an active or inactive node, without a stamp."""
    level, text = DiagnosticStatus.OK, "acting" if active else "inactive"
    if active and controller.safe_reason:
        level, text = DiagnosticStatus.ERROR, f"safe command: {controller.safe_reason}"
    policy = _status(
        f"{name}: policy",
        level,
        text,
        {
            "engine": controller.policy.engine,
            "ticks": ticks.count,
            "tick p50 [us]": f"{ticks.percentile_us(50):.1f}",
            "tick p99 [us]": f"{ticks.percentile_us(99):.1f}",
        },
    )
    counts = controller.gate.counts
    level = DiagnosticStatus.WARN if counts.not_finite else DiagnosticStatus.OK
    gate = _status(f"{name}: gate", level, "commands that the gate changed", asdict(counts))
    sources = controller.table.status(now_ns)
    return DiagnosticArray(
        status=[policy, gate, *(_source(name, source, topics[source.name]) for source in sources)]
    )


def _source(name: str, source: SourceStatus, topic: str) -> DiagnosticStatus:
    whole = source.fresh and source.present == source.expected and not source.error
    level = DiagnosticStatus.OK if whole else DiagnosticStatus.WARN
    if source.fresh:
        text = source.error or f"{source.present} of {source.expected} channels present"
    else:
        text = "no fresh message"
    age = "never" if source.age_s is None else f"{source.age_s:.3f}"
    return _status(
        f"{name}: source {source.name}",
        level,
        text,
        {
            "topic": topic,
            "age [s]": age,
            "messages": source.messages,
            "present": source.present,
            "expected": source.expected,
        },
    )


def _status(name: str, level: bytes, text: str, values: dict[str, Any]) -> DiagnosticStatus:
    return DiagnosticStatus(
        name=name,
        level=level,
        message=text,
        hardware_id="an_control",
        values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
    )
