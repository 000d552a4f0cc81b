"""Matches commands with the steps that they answer in lockstep; independent of ROS.

A stamp in a command identifies its step, so a step can be published again, and a late reply is
recognised. Without a stamp only the order counts: each step is published once, and the next one
only after its command has arrived or the wait has ended. The reason is that a late or repeated
command would otherwise be taken as the answer to the next step, and every later command would be
one step late too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

ATTEMPTS = 3
"""How often a step is published within the timeout if commands have stamps."""
PATIENCE = 10.0
"""`wait_and_count_late_commands` waits this many times as long as the episode's slowest command
took."""
MIN_LISTEN_S, GLANCE_S = 0.1, 1e-4
"""Minimum seconds that `wait_and_count_late_commands` waits, and the seconds that are given to
process messages which have already arrived."""


class Exchange:
    """A matcher of steps and commands in lockstep, where each step waits for its command.

    It publishes the readings of a step, and recognises the command that answers them. A command
    consists of one message on each command topic.

    Args:
        topics: The names of the command topics.
        stamped: For each command topic, whether its messages have a time stamp that names the step.
            If not, each step first waits for an overdue command of the previous step, which it
            could otherwise take for its own.
        publish: Publishes the readings of the current step.
        spin: Function that processes ROS messages for a while, given the time at which to stop (in
            seconds of `clock`). It returns False once this time has passed.
        timeout_s: The maximum seconds of each wait for a command.
        report: Called with the text of each warning for the user.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        topics: Sequence[str],
        stamped: Sequence[bool],
        publish: Callable[[], None],
        spin: Callable[[float], bool],
        timeout_s: float,
        report: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topics, self._stamped = tuple(topics), list(stamped)
        self._publish, self._spin, self._clock = publish, spin, clock
        self._timeout_s, self._report = timeout_s, report
        self._stamp_ns: int | None = None
        self._open = False
        self._awaited = [False] * len(self._topics)
        self._heard = 0
        self._longest_s = 0.0
        self._reported = False
        self.unmatched = 0
        """Number of commands without a stamp that no step asked for, or that never arrived, since
        the start. After each of them, steps may have used the command of another step."""

    def publish_readings_and_measure_latency_s(
        self, stamp_ns: int, is_complete: Callable[[], bool]
    ) -> float | None:
        """Publish a step's readings, wait for the command that answers, and return its latency.

        Args:
            stamp_ns: The stamp of the step's readings.
            is_complete: Returns whether all messages of the command have arrived.

        Returns:
            The seconds from publishing the readings to receiving the last message of the command,
            or None after the timeout.
        """
        self._wait_for_missing_commands()
        self._stamp_ns, self._open = stamp_ns, True
        self._awaited = [True] * len(self._topics)
        begin_s, attempts = self._clock(), ATTEMPTS if all(self._stamped) else 1
        for attempt in range(1, attempts + 1):
            until_s = begin_s + self._timeout_s * attempt / attempts
            self._publish()
            while not is_complete() and self._spin(until_s):
                pass
            if is_complete():
                took_s = self._clock() - begin_s
                self._longest_s = max(self._longest_s, took_s)
                return took_s
        self._open, self._longest_s = False, self._timeout_s
        return None

    def count_message_and_check_if_answer(self, topic_index: int, stamp_ns: int | None) -> bool:
        """Count a command message that has just arrived, and return whether it answers this step.

        Call this once for every command message.

        Args:
            topic_index: The index of the command topic on which the message arrived.
            stamp_ns: The stamp of the message; None if it has none.
        """
        self._heard += 1
        if stamp_ns is not None:
            current = self._open and stamp_ns == self._stamp_ns
            self._awaited[topic_index] &= not current
            return current
        self._stamped[topic_index] = False  # the type may have a stamp that the sender leaves at 0
        if self._awaited[topic_index]:
            self._awaited[topic_index] = False
            return self._open
        self._count_unmatched_command(
            f"a command on {self._topics[topic_index]} came that no step was waiting for, and has"
            " no stamp that names its step"
        )
        return False

    def wait_for_commands_of_previous_episode(self) -> None:
        """Wait until overdue commands of the previous episode have arrived, or the timeout is over.

        Call this before each episode, so that its first steps do not use the commands of an earlier
        one.
        """
        self._wait_for_missing_commands()
        self._longest_s, self._reported = 0.0, False

    def wait_and_count_late_commands(self) -> None:
        """Wait a short time after an episode's final step, and count commands that still arrive.

        A late command without a time stamp is counted in `unmatched`, because then each step of the
        episode may have used the command of another step. If the commands of all topics have
        stamps, this does not wait.
        """
        self._wait_for_missing_commands()
        if not all(self._stamped):
            listen_s = max(MIN_LISTEN_S, PATIENCE * self._longest_s)
            until_s = self._clock() + min(listen_s, self._timeout_s)
            while self._spin(until_s):
                pass

    def _wait_for_missing_commands(self) -> None:
        """Wait for commands without stamps that earlier steps asked for and did not get.

        A command that does not arrive within the timeout is counted as unmatched. Other commands
        that have arrived meanwhile are processed too.
        """
        self._open = False
        until_s = self._clock() + self._timeout_s
        while self._find_unanswered_topics() and self._spin(until_s):
            pass
        for topic in self._find_unanswered_topics():
            self._awaited[topic] = False
            self._count_unmatched_command(
                f"no command on {self._topics[topic]} came for a step, even late"
            )
        if all(self._stamped):
            return
        heard = None
        while heard != self._heard:
            heard = self._heard
            self._spin(self._clock() + GLANCE_S)

    def _find_unanswered_topics(self) -> list[int]:
        """Return the indices of the topics on which a command without a stamp is still awaited."""
        return [
            topic
            for topic, awaited in enumerate(self._awaited)
            if awaited and not self._stamped[topic]
        ]

    def _count_unmatched_command(self, event_text: str) -> None:
        """Count a command without a stamp that no step asked for, or that never arrived.

        From then on, steps may be answered by the commands of other steps. Therefore the user is
        told of the first such event of each episode.
        """
        self.unmatched += 1
        if not self._reported:
            self._reported = True
            self._report(
                f"{event_text}: steps of this episode may have used the command of another step"
                " (let the policy answer each step once, or use a command type with a stamp)"
            )
