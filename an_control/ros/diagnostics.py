"""Publish diagnostics of a running control loop once a second; log what changes.

The topic /diagnostics shows states; a status names the most serious problem first. The log has one
line for each change and repeats nothing. A source is a topic that the node subscribes to. A source
without any message so far is not reported as lost. Instead one line names all such sources after
WAIT_S, and a warning names each after START_S. These times count from the start, or from when a new
wiring adds the source. If the same thing changes repeatedly, at most LINES changes are logged in
WINDOW_S, and the further ones only counted. A source that is lost FLAPS times within WINDOW_S gets
one line that says why.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.impl.rcutils_logger import RcutilsLogger
from rclpy.node import Node

from an_control.control.command_safety import Watchdog
from an_control.control.controller import Controller, Decision
from an_control.control.model_wiring_check import (
    describe_sources_without_channel,
    join_names_shortened,
)
from an_control.policy.interface import MonitorReport
from an_control.record.recorder import NodeRecorder
from an_control.ros.doctor.running_doctor import RunningDoctor
from an_control.ros.graph import (
    count_nodes_of_same_name,
    describe_endpoints_of_wrong_type,
    describe_incompatible_subscriptions,
    get_owner_node_name,
    select_endpoints_by_type,
    suggest_similar_topic,
)
from an_control.ros.inputs import Inputs, describe_wrong_message_rate, describe_wrong_stamp_clock
from an_control.ros.outputs import COMMAND_QOS, CommandOutput
from an_control.ros.recording import describe_missing_black_box
from an_control.wiring import Notice, Readings, SourceStatus
from an_control.wiring.source_feed import TOO_OLD

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
KEPT_TICKS = 1024
MISSED_PERIODS = 1.5
SETTLING_REPORTS = 5
"""Number of reports after the node is configured in which errors about other nodes are not logged
yet.

A node that misses the first announcements of other nodes by DDS gets the next ones after 3 s."""
SHOWN = 8
"""Maximum number of missing channels that a status lists."""
ESTOP_TYPE = "std_msgs/msg/Bool"
RATE_REPORTS = 3
"""Number of reports, one a second, over which the message rate of a source is measured."""


class TickTimes:
    """A record of the newest ticks (control steps): duration, missed deadlines, age of readings.

    A tick that takes longer than a control period misses its deadline. In real time a deadline is
    also missed if a tick starts more than one and a half periods after the previous one.

    Args:
        step_s: The control period in seconds.
        real_time: Whether ticks should come at the control rate, so that one can start late; False
            in lockstep with a simulator.
    """

    def __init__(self, step_s: float, *, real_time: bool) -> None:
        self._durations_s = np.zeros(KEPT_TICKS)
        self._ages_s = np.zeros(KEPT_TICKS)
        self._step_s = step_s
        self._gap_s = MISSED_PERIODS * step_s if real_time else np.inf
        self._last_s = np.inf
        self.count = 0
        self.missed = 0

    def record_tick(self, begin_s: float, end_s: float, age_s: float) -> None:
        """Record the duration of a tick and the age of its readings.

        Args:
            begin_s: The time at which the tick started, on the same clock as `end_s`.
            end_s: The time at which the tick ended.
            age_s: The age of the tick's sensor readings when the command was sent; NaN if there
                were no readings.
        """
        self._durations_s[self.count % KEPT_TICKS] = end_s - begin_s
        self._ages_s[self.count % KEPT_TICKS] = age_s
        self.count += 1
        if end_s - begin_s > self._step_s or begin_s - self._last_s > self._gap_s:
            self.missed += 1
        self._last_s = begin_s

    def ignore_gap_before_next_tick(self) -> None:
        """Do not count the next tick as late, however long after the previous one it starts."""
        self._last_s = np.inf

    def compute_duration_percentile_us(self, percent: float) -> float:
        """Return a percentile, in microseconds, of the durations of the newest ticks.

        Args:
            percent: Which percentile, 0 to 100; 50 is the median.
        """
        return _compute_percentile(self._durations_s[: self.count], percent) * 1e6

    def compute_reading_age_percentile_ms(self, percent: float) -> float:
        """Return a percentile, in milliseconds, of how old the readings were in the newest ticks.

        Args:
            percent: Which percentile, 0 to 100; 50 is the median.
        """
        ages_s = self._ages_s[: self.count]
        return _compute_percentile(ages_s[np.isfinite(ages_s)], percent) * 1e3


class DiagnosticsReport:
    """A maker of the messages on /diagnostics for one control loop.

    Args:
        node: The node that owns publishers and subscriptions.
        controller: The controller, with policy, identity monitor, safety gate and wiring.
        ticks: The times of the newest ticks.
        watchdog: The loop's watchdog.
        inputs: The loop's subscriptions.
        output: The loop's publishers of commands.
        real_time: Whether the loop runs in real time, so that the sources' message rates and clocks
            are checked.
        recorder: The recorder, whose state is reported; None: nothing is recorded.
        doctor: The wiring doctor, whose findings are reported; None: there is none.
    """

    def __init__(
        self,
        node: Node,
        controller: Controller,
        ticks: TickTimes,
        watchdog: Watchdog,
        inputs: Inputs,
        output: CommandOutput,
        *,
        real_time: bool,
        recorder: NodeRecorder | None = None,
        doctor: RunningDoctor | None = None,
    ) -> None:
        self._recorder, self._doctor = recorder, doctor
        self._node, self._controller = node, controller
        self._ticks, self._watchdog, self._inputs = ticks, watchdog, inputs
        self._output, self._real_time = output, real_time
        self._found: dict[tuple[str, str], tuple[bytes, str]] = {}
        """Level and text of each problem in this report. The key is a pair: part of the node, and
        kind of problem."""
        self._problems: set[tuple[str, str]] = set()
        """The key (part of the node, kind of problem) of each problem in the previous report."""
        self._logged: set[tuple[str, str]] = set()
        """The key (part of the node, kind of problem) of each problem that has been logged."""
        self._counts: dict[str, deque[tuple[int, int]]] = {}
        """For each source, a pair for each of the newest reports: the time in ns, and the number of
        messages by then."""
        self._reports = 0

    def make_message(self, active: bool, now_ns: int) -> DiagnosticArray:
        """Return the diagnostic message with the statuses of all parts, without a stamp.

        Args:
            active: Whether the node is active.
            now_ns: The time now, against which ages are measured.
        """
        self._found = {}
        sources = self._controller.table.list_source_statuses(now_ns)
        statuses = [
            self._make_policy_status(active),
            self._make_gate_status(),
            *self._make_monitor_statuses(),
            *self._make_doctor_statuses(),
            self._make_watchdog_status(active),
            self._make_estop_status(),
            self._make_wiring_status(sources),
            self._make_recording_status(),
            *(self._make_source_status(source, now_ns) for source in sources),
        ]
        self._log_confirmed_problems()
        return DiagnosticArray(status=statuses)

    def _make_policy_status(self, active: bool) -> DiagnosticStatus:
        """Return the diagnostic status of the policy and its ticks (control steps)."""
        controller, ticks = self._controller, self._ticks
        level, text = OK, "acting" if active else "inactive"
        if active and self._output.shadow:
            text = "proposing (shadow)"
        if active and controller.decision.safe_reason:
            level, text = ERROR, f"safe command: {controller.decision.safe_reason}"
        elif active and not controller.bring_up.done:
            text = "moving to the start pose"
        values = {
            "model": controller.acting.model_path,
            "new model": controller.acting.new_model or "none",
            "engine": controller.acting.policy.engine,
            "ticks": ticks.count,
            "missed deadlines": ticks.missed,
            "ticks without a new reading": controller.repeats,
            "recoveries": controller.acting.policy.recovery_count,
        }
        if not controller.acting.policy.permutation_invariant:
            values["attention"] = NO_ATTENTION
        for name, share in (("p50", 50.0), ("p99", 99.0)):
            values[f"age of readings {name} [ms]"] = (
                f"{ticks.compute_reading_age_percentile_ms(share):.2f}"
            )
        for name, share in (("p50", 50.0), ("p99", 99.0), ("max", 100.0)):
            values[f"tick {name} [us]"] = f"{ticks.compute_duration_percentile_us(share):.1f}"
        return self._make_status("policy", level, text, values)

    def _make_gate_status(self) -> DiagnosticStatus:
        """Return the diagnostic status of the safety gate, which limits commands."""
        gate = self._controller.gate
        values = asdict(gate.counts) | {"authority": f"{gate.authority:.2f}"}
        level = WARN if gate.counts.not_finite else OK
        return self._make_status(
            "gate", level, "number of commands that the safety gate changed, by reason", values
        )

    def _make_monitor_statuses(self) -> list[DiagnosticStatus]:
        """Return the status of the identity monitor, which detects rewired sensors, in a list.

        The list is empty if the model has no monitor or the user has turned it off. If the model
        file turns the monitor off, the status is a warning that says why.
        """
        report = self._controller.acting.policy.monitor_report
        if report is None:
            warning = self._controller.explain_disabled_monitor()
            return (
                [self._make_status("monitor", WARN, warning, {"setting": "off"})] if warning else []
            )
        fine, text, values = make_monitor_diagnostics(report)
        return [self._make_status("monitor", OK if fine else WARN, text, values)]

    def _make_doctor_statuses(self) -> list[DiagnosticStatus]:
        """Return a list of one status, of the wiring doctor, which finds wrong lines of the wiring.

        The list is empty if the doctor is off or the policy has no monitor.
        """
        if self._doctor is None or self._controller.acting.policy.monitor_report is None:
            return []
        fine, text, values = self._doctor.make_diagnostics()
        return [self._make_status("doctor", OK if fine else WARN, text, values)]

    def _make_watchdog_status(self, active: bool) -> DiagnosticStatus:
        """Return the status of the watchdog, which sends the safe command if no other is sent."""
        watchdog = self._watchdog
        level, text = OK, "commands are sent" if active else "inactive"
        if active and self._output.shadow:
            text = "off: in shadow no commands are sent"
        elif not watchdog.timeout_s:
            text = "off"
        elif watchdog.tripped:
            level, text = ERROR, "no command in time: safe command"
        elif active and not watchdog.begun:
            level, text = WARN, f"no command since the activation: {self._explain_no_command()}"
            self._found["watchdog", text] = ERROR, text
        values = {
            "timeout [s]": f"{watchdog.timeout_s:.4f}",
            "trips": watchdog.trips,
            "longest time without a command [s]": f"{watchdog.longest_s:.3f}",
            "safe commands": watchdog.sent,
        }
        return self._make_status("watchdog", level, text, values)

    def _explain_no_command(self) -> str:
        """Return the reason why no command has been sent yet, and what to do."""
        if self._controller.decision.safe_reason:
            return self._controller.decision.safe_reason
        if self._node.get_parameter("use_sim_time").value:
            return "no tick has been made; is /clock published? (parameter use_sim_time)"
        return "no tick has been made: the executor is busy, or the machine is"

    def _make_estop_status(self) -> DiagnosticStatus:
        """Return the diagnostic status of the emergency stop."""
        reason, topic = self._controller.estop.reason, f"{self._node.get_name()}/estop"
        deaf = describe_endpoints_of_wrong_type(
            self._node.get_publishers_info_by_topic("~/estop"), ESTOP_TYPE, topic
        )
        if deaf:
            deaf = f"publisher of {deaf}"
            self._found["e-stop", deaf] = ERROR, deaf
        text = reason or deaf
        return self._make_status("e-stop", ERROR if text else OK, text or "clear", {})

    def _make_recording_status(self) -> DiagnosticStatus:
        """Return the status of the recording or of the black box (record of the last seconds).

        If there is no black box although the parameters ask for one, the status is a warning that
        says why.
        """
        if self._recorder is None:
            missing = describe_missing_black_box(self._node)
            return self._make_status("recording", WARN if missing else OK, missing or "off", {})
        text, fine, values = self._recorder.get_recording_diagnostics()
        return self._make_status("recording", OK if fine else WARN, text, values)

    def _make_wiring_status(self, sources: list[SourceStatus]) -> DiagnosticStatus:
        """Return the status of the wiring: the state of its sources, and other commanding nodes.

        The level of the status is ERROR if another node publishes commands to the robot, or has
        this node's name.

        Args:
            sources: The states of the wiring's sources, which are the subscribed topics.
        """
        node, wiring = self._node, self._controller.wiring
        errors, warnings, commanding = [], [], 0
        for message in wiring.command.messages:
            one, wrong, unheard = self._count_publishers_and_find_errors_and_warnings(
                message.topic, message.type
            )
            commanding = max(commanding, one)
            errors += wrong
            warnings += unheard
        name, named = node.get_fully_qualified_name(), count_nodes_of_same_name(node)
        if named > 1:
            errors.append(f"{named} nodes are named {name}")
        complete = sum(_has_fresh_readings_of_all_channels(source) for source in sources)
        text = f"{complete} of {len(sources)} sources complete"
        if errors or warnings:
            text = "; ".join(errors + warnings)
            self._found["wiring", text] = ERROR, text
        level = ERROR if errors else WARN if warnings or complete < len(sources) else OK
        topics = ", ".join(wiring.command.topic_keys)
        values = {"file": wiring.file, "command": topics, "commanding": commanding}
        return self._make_status("wiring", level, text, values)

    def _count_publishers_and_find_errors_and_warnings(
        self, topic: str, type_: str
    ) -> tuple[int, list[str], list[str]]:
        """Count the publishers of a command topic, and describe what is wrong with its nodes.

        Args:
            topic: The command topic.
            type_: The message type of the commands.

        Returns:
            Three values: the number of publishers that command the robot; error texts, in the case
            of more than one such publisher; and warnings about nodes with another message type or
            quality of service.
        """
        publishers = self._node.get_publishers_info_by_topic(topic)
        resolved = self._node.resolve_topic_name(topic)
        name = self._node.get_fully_qualified_name()
        subscriptions = [
            one
            for one in self._node.get_subscriptions_info_by_topic(topic)
            if get_owner_node_name(one) != name
        ]
        commanding, errors, warnings = len(select_endpoints_by_type(publishers, type_)), [], []
        if commanding > 1 and not self._output.shadow:
            who = ", ".join(
                sorted(
                    get_owner_node_name(one) for one in select_endpoints_by_type(publishers, type_)
                )
            )
            errors.append(
                f"{commanding} publishers command {resolved} ({who}): stop one of them, or set the"
                " parameter shadow"
            )
        if other := describe_endpoints_of_wrong_type(publishers, type_, resolved):
            warnings.append(f"publisher of {other}")
        if other := describe_endpoints_of_wrong_type(subscriptions, type_, resolved):
            warnings.append(f"subscription of {other}")
        if not self._output.shadow:
            warnings += filter(
                None,
                [describe_incompatible_subscriptions(subscriptions, resolved, type_, COMMAND_QOS)],
            )
        return commanding, errors, warnings

    def _make_source_status(self, source: SourceStatus, now_ns: int) -> DiagnosticStatus:
        """Return the diagnostic status of one source, which is a subscribed sensor topic."""
        part, topic = f"source {source.name}", self._inputs.topics[source.name]
        config = self._controller.wiring.find_source(source.name)
        infos = self._node.get_publishers_info_by_topic(topic)
        publishers = len(select_endpoints_by_type(infos, config.type))
        rates_hz = self._measure_recent_message_rates_hz(source, now_ns)
        text = source.error or f"{source.present} of {source.expected} channels present"
        if not (source.error or source.fresh):
            text = self._controller.table.explain_lateness(source.name, now_ns)
            if not publishers:
                text = f"no publisher{suggest_similar_topic(self._node, topic, config.type)}"
        wrong: dict[str, str] = {}
        if other := describe_endpoints_of_wrong_type(infos, config.type, topic):
            text = f"publisher of {other}"
            self._found[part, text] = ERROR, text
        else:
            wrong = self._find_source_problems_by_kind(source, rates_hz if publishers == 1 else [])
            self._found |= {(part, kind): (WARN, words) for kind, words in wrong.items()}
            if unread := describe_sources_without_channel(self._controller.wiring).get(source.name):
                wrong["unread"] = unread  # logged already
            text = "; ".join(filter(None, [source.error, *wrong.values()])) or text
        values = {
            "topic": topic,
            "publishers": publishers,
            "rate [Hz]": f"{fmean(rates_hz):.1f}" if rates_hz else "unknown",
            "age [s]": "never" if source.age_s is None else f"{source.age_s:.3f}",
            "messages": source.messages,
            "present": source.present,
            "expected": source.expected,
            "present share": f"{source.present / max(1, source.expected):.2f}",
            "missing": ", ".join(source.missing[:SHOWN]) + ", ..." * (len(source.missing) > SHOWN),
            "missing because": "; ".join(source.reasons),
            "not yet expected": source.unexpected,
            "dropped": source.dropped,
        }
        level = OK if _has_fresh_readings_of_all_channels(source) and not (other or wrong) else WARN
        return self._make_status(part, level, text, values)

    def _measure_recent_message_rates_hz(self, source: SourceStatus, now_ns: int) -> list[float]:
        """Return the newest message rates of a source (subscribed topic), the oldest first.

        Call this once in each report, that is once a second, because each rate is measured between
        two successive calls. At most three rates (`RATE_REPORTS`) are returned, none at the first
        call.
        """
        counts = self._counts.setdefault(source.name, deque(maxlen=RATE_REPORTS + 1))
        if counts and (now_ns <= counts[-1][0] or source.messages < counts[-1][1]):
            counts.clear()  # the clock was set back, or the source is another one
        counts.append((now_ns, source.messages))
        return [
            1e9 * (messages - before) / (at_ns - then_ns)
            for (then_ns, before), (at_ns, messages) in pairwise(counts)
        ]

    def _find_source_problems_by_kind(
        self, source: SourceStatus, rates_hz: list[float]
    ) -> dict[str, str]:
        """Return what is wrong with a source (subscribed topic) that sends messages.

        Problems are several publishers that send the same readings, a wrong message rate, and time
        stamps far from arrival times.

        Args:
            source: The state of the source.
            rates_hz: The newest message rates if the topic has one publisher, else [].

        Returns:
            A mapping from the kind of problem to its description.
        """
        rivals = self._inputs.describe_competing_publishers(source.name)
        wrong = dict(zip(rivals, rivals, strict=True))
        if wrong or not self._real_time:
            return wrong
        config = self._controller.wiring.find_source(source.name)
        if len(rates_hz) == RATE_REPORTS and min(rates_hz) > 0.0:
            wrong["rate"] = describe_wrong_message_rate(
                config, rates_hz, self._controller.wiring.rate_hz
            )
        if source.fresh and source.stamp_ns is not None and source.age_s is not None:
            now_s = self._node.get_clock().now().nanoseconds / 1e9
            wrong["clock"] = describe_wrong_stamp_clock(
                config, source.stamp_ns / 1e9 - (now_s - source.age_s)
            )
        return {kind: text for kind, text in wrong.items() if text}

    def _log_confirmed_problems(self) -> None:
        """Log, once, each problem that both this report and the previous one contain.

        Two reports are needed because a single report may be wrong while nodes discover each other.
        A problem is logged again only after two successive reports without it.
        """
        self._reports += 1
        for key, (level, text) in self._found.items():
            settling = level == ERROR and self._reports <= SETTLING_REPORTS
            if key in self._problems and key not in self._logged and not settling:
                logger = self._node.get_logger()
                if level == ERROR:  # rclpy refuses another severity from one line of code
                    logger.error(f"{key[0]}: {text}")
                else:
                    logger.warning(f"{key[0]}: {text}")
                self._logged.add(key)
        self._logged &= self._found.keys() | self._problems
        self._problems = set(self._found)

    def _make_status(
        self, part: str, level: bytes, text: str, values: dict[str, Any]
    ) -> DiagnosticStatus:
        """Return a diagnostic status of a part of this node.

        Args:
            part: The name of the part, such as "gate".
            level: OK, WARN or ERROR.
            text: The status in words.
            values: Further values of the status, by name.
        """
        return DiagnosticStatus(
            name=f"{self._node.get_fully_qualified_name()}: {part}",
            level=level,
            message=text,
            hardware_id="an_control",
            values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
        )


def make_monitor_diagnostics(
    report: MonitorReport,
) -> tuple[bool, str, dict[str, Any]]:
    """Return a diagnostic status of the monitor, which detects rewired sensors.

    Returns:
        Three values. The first is True if every sensor's signal arrives at the channel that it is
        wired to and no sensor has a constant offset, and False if this is not so or unknown. The
        second describes the status in words. The third is a dict of further values, such as
        "rewires detected".
    """
    fine, text = False, "all signals are where they are wired"
    if report.waiting:
        text = report.waiting
    elif report.misfit:
        text = f"its model does not fit this robot: {report.misfit}; signals are left as they are"
    elif report.lost:
        text = "cannot tell which input slot carries which signal"
    elif report.moved:
        text = f"{len(report.moved)} signals are not where they are wired"
    elif report.offsets:
        text = f"the readings of {len(report.offsets)} channels have a constant offset"
    else:
        fine = True
    values = {
        "setting": report.setting,
        "rewires detected": report.rewires,
        "excess NLL [nats]": f"{report.excess_nll:.1f}",
        "readings late [ticks]": report.late_ticks,
    }
    carries = {f"{slot} carries": signal for slot, signal in report.moved.items()}
    offsets = {f"{name} offset": f"{offset:+.3g}" for name, offset in report.offsets.items()}
    return fine, text, values | carries | offsets


def _compute_percentile(values: np.ndarray, percent: float) -> float:
    """Return a percentile (`percent`, 0 to 100) of `values`, or 0 if there are none."""
    return float(np.percentile(values, percent)) if len(values) else 0.0


def _has_fresh_readings_of_all_channels(source: SourceStatus) -> bool:
    """Return whether a source's messages are readable, up to date, and have all its channels."""
    return source.fresh and source.present == source.expected and not source.error


WAIT_S, START_S = 1.0, 5.0
"""Seconds without a source's first message until the log says that the node waits for the source,
and until it says that the source is missing.

A node that misses the first announcements of other nodes by DDS gets the next ones after 3 s."""
FLAPS = 3
"""Number of losses of a source within WINDOW_S after which one line gives the reason, in place of a
line for each loss."""
LINES, WINDOW_S = 6, 10.0
"""Maximum number of log lines about one subject, and the seconds within which they are counted."""
NAMES = "names of channels"
"""The subject under which log lines about channels that the model does not know are counted."""
NO_ATTENTION = "none: the policy needs its channels in order"
"""Text in the diagnostics for a policy without attention, which publishes nothing on `~/attention`
and `~/keys`."""
MONITOR = "monitor"
"""The subject under which log lines about rewired sensors, as the identity monitor reports them,
are counted."""


class Throttle:
    """A limiter that allows six log lines (`LINES`) on a subject in ten seconds (`WINDOW_S`).

    A subject is any text that groups log lines, such as the name of a source. The limiter counts
    the log lines that it does not allow.
    """

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}
        self._lines: Counter[str] = Counter()

    def count_log_line_and_check_allowed(self, subject: str, now_s: float) -> bool:
        """Count a log line about a subject (any text). Return whether it may be logged now."""
        if now_s >= self._until_s.get(subject, 0.0):
            self._until_s[subject] = now_s + WINDOW_S
            self._lines[subject] = 0
        self._lines[subject] += 1
        return self._lines[subject] <= LINES

    def pop_suppressed_line_counts(self, now_s: float) -> Iterator[tuple[str, int]]:
        """Yield pairs: a subject, and the number of its log lines that were not allowed.

        Only subjects whose ten seconds (`WINDOW_S`) are over are yielded. Their lines are then
        counted anew.

        Args:
            now_s: The time of the steady clock.
        """
        for subject, until_s in tuple(self._until_s.items()):
            if now_s >= until_s:
                del self._until_s[subject]
                yield subject, max(0, self._lines.pop(subject) - LINES)


class EventLog:
    """A writer of log lines about what has changed since the previous tick.

    Args:
        logger: The node's logger.
        controller: The controller whose sources, commands and identity monitor are watched.
    """

    def __init__(self, logger: RcutilsLogger, controller: Controller) -> None:
        self._logger, self._controller = logger, controller
        self._named: tuple[object, ...] = (None, None, None)
        self._noted: tuple[str, ...] = ()
        self._moved: dict[str, str] = {}
        """The rewired sensors as logged last: a mapping from the channel on which readings arrive
        to the channel whose readings they are."""
        self._misfit, self._policy_waits = False, ""
        self.forget_logged_changes(0.0)
        self._log_new_configuration_notes(0.0)

    def forget_logged_changes(self, now_s: float) -> None:
        """Forget what was logged before, so that what still applies is logged once more.

        Call this when the node starts to control the robot.

        Args:
            now_s: The time of the steady clock.
        """
        self._controller.table.clear_notices_and_report_anew()
        self._throttle = Throttle()
        self._begin_s, self._patient_until_s = now_s, now_s + START_S
        self._waiting: dict[str, tuple[float, Notice]] = {}
        """For each source without a message, a pair: the time since when it is awaited, and the
        notice to log."""
        self._said_waiting: frozenset[str] = frozenset()
        self._losses: dict[str, deque[tuple[float, int]]] = {}
        """For each source, a pair for each of its newest losses: the time, and the number of
        messages received by then."""
        self._flapping_until_s: dict[str, float] = {}
        self._logged_how = ""
        """How the node commanded without a reason for the safe command, as logged last."""
        self._logged_cause = ""
        """The reason for the safe command as logged last; "" while the policy acts."""

    def log_changes(self, decision: Decision, now_s: float, *, shadow: bool) -> None:
        """Log what has changed since the previous tick, such as lost readings or an e-stop.

        Args:
            decision: What was decided in the tick.
            now_s: The time of the steady clock.
            shadow: Whether commands are only proposed and not sent to the robot.
        """
        for subject, count in self._throttle.pop_suppressed_line_counts(now_s):
            if count:
                self._log_suppressed_count(subject, count)
        self._log_new_configuration_notes(now_s)
        for notice in self._controller.table.pop_notices():
            self._log_source_notice(notice, now_s)
        if self._waiting:
            self._log_awaited_sources(now_s)
        cause, how = decision.safe_cause, "proposing (shadow)" if shadow else "acting"
        if not self._controller.bring_up.done:
            how = "moving to the start pose"
        if cause:
            if cause != self._logged_cause and (self._logged_how or now_s >= self._patient_until_s):
                if self._throttle.count_log_line_and_check_allowed("", now_s):
                    self._logger.warning(f"safe command: {decision.safe_reason}")
                self._logged_cause = cause
        elif how != self._logged_how or self._logged_cause:
            if self._throttle.count_log_line_and_check_allowed("", now_s):
                self._log_how_node_commands(decision.readings, how)
            self._logged_how, self._logged_cause = how, ""
        self._log_monitor_changes(now_s)

    def _log_monitor_changes(self, now_s: float) -> None:
        """Log what has changed in the report of the identity monitor.

        The log lines tell which input slots carry other signals than they are wired to, that the
        monitor's forward model does not fit this robot, or why the policy does not act yet.
        """
        report = self._controller.acting.policy.monitor_report
        if report is None:
            return
        if report.waiting != self._policy_waits:
            self._policy_waits = report.waiting
            if self._policy_waits:
                self._logger.warning(self._policy_waits)
        if bool(report.misfit) is not self._misfit:
            self._misfit = bool(report.misfit)
            if self._misfit and self._throttle.count_log_line_and_check_allowed(MONITOR, now_s):
                self._logger.warning(
                    f"the monitor's model does not fit this robot: {report.misfit}; signals are"
                    " left as they are"
                )
        moved = report.moved
        if report.lost or moved == self._moved:
            return
        changed = {
            slot: moved.get(slot, slot)
            for slot in sorted({*moved, *self._moved})
            if moved.get(slot) != self._moved.get(slot)
        }
        self._moved = moved
        if self._throttle.count_log_line_and_check_allowed(MONITOR, now_s):
            where = join_names_shortened(
                f"the slot of {slot} carries {'it again' if signal == slot else signal}"
                for slot, signal in changed.items()
            )
            self._logger.info(
                f"the monitor found {len(changed)} signals in other input slots: {where}"
            )

    def _log_new_configuration_notes(self, now_s: float) -> None:
        """Log the controller's new notes if its wiring, channels or policy have changed.

        A note is a sentence such as that some channels are unknown (see
        `Controller.list_configuration_notes`).
        """
        controller = self._controller
        named = controller.table.ids, controller.acting.policy, controller.wiring
        old, before = self._named, self._noted
        if named[0] is old[0] and named[1] is old[1] and named[2] is old[2]:
            return
        self._named = named
        self._noted = controller.list_configuration_notes()
        for note in self._noted:
            if note not in before and self._throttle.count_log_line_and_check_allowed(NAMES, now_s):
                self._logger.warning(note)

    def _log_source_notice(self, notice: Notice, now_s: float) -> None:
        """Log that a source was lost or has come back, unless it was logged too often lately.

        Args:
            notice: The change of the source's state. If the source has sent no message yet, its
                loss is not logged here, but later by `_log_awaited_sources`.
            now_s: The time of the steady clock.
        """
        name = notice.source
        if notice.kind == "lost" and notice.never and not notice.channels:
            self._waiting[name] = now_s, notice
        elif notice.kind == "recovered" and not notice.channels and name in self._waiting:
            del self._waiting[name]
        elif self._detect_flapping_and_log(
            notice, now_s
        ) or not self._throttle.count_log_line_and_check_allowed(name, now_s):
            return
        elif notice.kind == "lost":
            self._logger.warning(str(notice))
        else:
            self._logger.info(str(notice))

    def _log_awaited_sources(self, now_s: float) -> None:
        """Log which sources (subscribed topics) have sent no message for a second (`WAIT_S`).

        Log a warning for each source that has sent none for 5 s (`START_S`).
        """
        late = {name for name, (then_s, _) in self._waiting.items() if now_s >= then_s + WAIT_S}
        if late - self._said_waiting:
            self._logger.info(f"waiting for the first message of {', '.join(sorted(late))}")
        self._said_waiting = frozenset(late)
        for name, (then_s, notice) in tuple(self._waiting.items()):
            if now_s >= then_s + START_S:
                self._logger.warning(str(notice))
                del self._waiting[name]

    def _detect_flapping_and_log(self, notice: Notice, now_s: float) -> bool:
        """Return whether a source (subscribed topic) was lost three times (`FLAPS`) in ten seconds.

        If it was, log this in one line, in place of a line for each loss.

        Args:
            notice: The newest change of the source's state.
            now_s: The time of the steady clock.
        """
        name = notice.source
        if notice.channels:
            return False
        if now_s < self._flapping_until_s.get(name, 0.0):
            return True
        if notice.kind != "lost":
            return False
        losses = self._losses.setdefault(name, deque(maxlen=FLAPS))
        losses.append((now_s, self._count_messages(name)))
        (then_s, before), (_, messages) = losses[0], losses[-1]
        if len(losses) < FLAPS or not 0.0 < now_s - then_s < WINDOW_S:
            return False
        self._flapping_until_s[name] = now_s + WINDOW_S
        max_age_s = self._controller.wiring.find_source(name).max_age_s
        why = (
            f"{(messages - before) / (now_s - then_s):.3g} messages a second come, and its"
            f" max_age_s is {max_age_s:g}; raise it, or find out what delays the messages"
        )
        if not notice.reason.startswith(TOO_OLD):  # messages come, but cannot be read
            why = notice.reason
        self._logger.warning(
            f"source {name!r} was lost {FLAPS} times in {now_s - then_s:.1f} s: {why}"
        )
        return True

    def _count_messages(self, source: str) -> int:
        """Return the number of messages that a source (subscribed topic) has sent."""
        statuses = self._controller.table.list_source_statuses(0)
        return next((one.messages for one in statuses if one.name == source), 0)

    def _log_how_node_commands(self, readings: Readings, how: str) -> None:
        """Log how the node commands, with the number of present channels and the control rate.

        Args:
            readings: The sensor readings of the tick.
            how: How the node commands, such as "acting".
        """
        present = f"{len(readings.ids)} of {readings.expected} channels"
        rate = f"{1.0 / self._controller.step_s:.1f} Hz"
        again = " again" if how == self._logged_how else ""
        self._logger.info(f"{how}{again}: {present}, {rate}")

    def _log_suppressed_count(self, subject: str, count: int) -> None:
        """Log how many changes of a subject were not logged one by one, and its present state.

        Args:
            subject: The subject of the log lines: the name of a source, `NAMES` (ids of channels),
                `MONITOR` (moved signals), or "" (commands).
            count: The number of changes that were not logged.
        """
        if subject == NAMES:
            self._logger.warning(f"channels: {count} more changes of ids in {WINDOW_S:g} s")
            return
        if subject == MONITOR:
            self._logger.info(
                f"the monitor found signals in other input slots {count} more times in"
                f" {WINDOW_S:g} s; now {len(self._moved)} are not where they are wired"
            )
            return
        if not subject:
            now = self._controller.decision.safe_reason or "acting"
            self._logger.warning(f"commands: {count} more changes in {WINDOW_S:g} s; now {now}")
            return
        for status in self._controller.table.list_source_statuses(0):
            if status.name == subject:
                self._logger.warning(
                    f"source {subject!r}: {count} more changes in {WINDOW_S:g} s; now"
                    f" {status.present} of {status.expected} channels present"
                )
