"""The requests and replies of a lockstep on a network of the test's own, with its own time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from an_control_sim.bridge.exchange import PATIENCE, Exchange

TIMEOUT_S = 1.0


class Answer(NamedTuple):
    """What becomes of a policy's answer to one publishing of a step, on one topic."""

    after_s: float = 0.01
    lost: bool = False
    again_s: float | None = None
    """How long after it the same answer is sent once more."""


class Network:
    """Delivers commands late, twice or never, but those of a topic in the order of sending.

    `answer` gives what becomes of the answer to the n-th publishing of a step on a topic. What is
    taken for a step is in `taken`: by step the steps that its parts answer.
    """

    def __init__(
        self,
        stamped: Sequence[bool],
        answer: Callable[[int, int, int], Answer],
        *,
        repeats: bool = True,
    ) -> None:
        self.now_s, self._stamped, self._answer, self._repeats = 0.0, stamped, answer, repeats
        self._queue: list[tuple[float, int, int, int]] = []
        self._order, self._last_s = count(), [0.0] * len(stamped)
        self.step = self.published = 0
        self._parts: list[int | None] = []
        self.taken: list[tuple[int | None, ...]] = []
        self.reports: list[str] = []
        topics = [f"/topic_{number}" for number in range(len(stamped))]
        self.exchange = Exchange(
            topics, stamped, self._publish, self._spin, TIMEOUT_S, self.reports.append,
            lambda: self.now_s,
        )  # fmt: skip

    def play(self, steps: int) -> Network:
        """Make an episode."""
        self.exchange.wait_for_commands_of_previous_episode()
        for self.step in range(1, steps + 1):
            self._parts, self.published = [None] * len(self._stamped), 0
            whole = (
                self.exchange.publish_readings_and_measure_latency_s(
                    self.step, lambda: None not in self._parts
                )
                is not None
            )
            self.taken.append(tuple(self._parts) if whole else ())
        self.exchange.wait_and_count_late_commands()
        return self

    @property
    def timeouts(self) -> int:
        return self.taken.count(())

    @property
    def wrong(self) -> list[int]:
        """The steps that took a command of another one."""
        return [step for step, parts in enumerate(self.taken, 1) if {*parts} - {step}]

    def _publish(self) -> None:
        self.published += 1
        if self.published > 1 and not self._repeats:
            return
        for topic in range(len(self._stamped)):
            answer = self._answer(self.step, topic, self.published)
            self._send(topic, self.now_s + answer.after_s, answer.lost)
            if answer.again_s is not None:
                self._send(topic, self.now_s + answer.after_s + answer.again_s, False)

    def _send(self, topic: int, at_s: float, lost: bool) -> None:
        if not lost:
            self._last_s[topic] = at_s = max(at_s, self._last_s[topic])
            heapq.heappush(self._queue, (at_s, next(self._order), topic, self.step))

    def _spin(self, until_s: float) -> bool:
        if self.now_s >= until_s:
            return False
        if not self._queue or self._queue[0][0] > until_s:
            self.now_s = until_s
            return True
        at_s, _, topic, step = heapq.heappop(self._queue)
        self.now_s = max(self.now_s, at_s)
        if self.exchange.count_message_and_check_if_answer(
            topic, step if self._stamped[topic] else None
        ):
            self._parts[topic] = step
        return True


ONE_OF_EACH = [[True], [False], [False, False], [True, False]]
topics = st.sampled_from(ONE_OF_EACH)


def lists(draw: st.DrawFn, stamped: Sequence[bool], answers: st.SearchStrategy) -> Callable:
    """A step's answers by topic, drawn for 8 steps; to a repeated publishing as to the first."""
    rows = draw(st.lists(st.tuples(*[answers] * len(stamped)), min_size=8, max_size=8))
    return lambda step, topic, published: rows[step - 1][topic]


@st.composite
def losses_and_delays(draw: st.DrawFn) -> Network:
    stamped = draw(topics)
    answers = st.builds(Answer, st.floats(0.0, 3.0), st.booleans(), st.none())
    return Network(stamped, lists(draw, stamped, answers), repeats=draw(st.booleans()))


@st.composite
def duplicates_and_delays(draw: st.DrawFn) -> Network:
    stamped = draw(topics)
    late_s = st.floats(TIMEOUT_S / PATIENCE, TIMEOUT_S)
    again_s = st.none() | st.floats(0.0, 0.5)
    answers = st.builds(Answer, late_s, st.just(False), again_s)
    return Network(stamped, lists(draw, stamped, answers))


@st.composite
def delays_within_the_timeout(draw: st.DrawFn) -> Network:
    stamped = draw(topics)
    answers = st.builds(Answer, st.floats(0.0, 0.999 * TIMEOUT_S), st.just(False), st.none())
    return Network(stamped, lists(draw, stamped, answers), repeats=draw(st.booleans()))


@given(delays_within_the_timeout())
def test_commands_that_come_within_the_timeout_change_nothing_however_late_they_are(network):
    network.play(8)
    assert network.taken == [(step,) * len(network.taken[0]) for step in range(1, 9)]
    assert network.exchange.unmatched == 0 and not network.reports


@given(losses_and_delays())
def test_whatever_is_late_or_lost_no_step_takes_the_command_of_another_one_unreported(network):
    network.play(8)
    if network.wrong:
        assert network.exchange.unmatched > 0 and network.reports
    if not network.exchange.unmatched:
        assert all({*parts} == {step} for step, parts in enumerate(network.taken, 1) if parts)


@given(duplicates_and_delays())
def test_whatever_comes_twice_no_step_takes_the_command_of_another_one_unreported(network):
    network.play(8)
    if network.wrong:
        assert network.exchange.unmatched > 0 and len(network.reports) == 1


@given(st.one_of(losses_and_delays(), duplicates_and_delays()))
def test_stamped_commands_are_never_taken_for_another_step(network):
    network.play(8)
    for step, parts in enumerate(network.taken, 1):
        stamped = [part for part, has in zip(parts, network._stamped, strict=False) if has]
        assert {*stamped} <= {step}


@pytest.mark.parametrize("stamped", ONE_OF_EACH)
def test_one_slow_answer_costs_time_and_nothing_else(stamped):
    slow = Network(stamped, lambda step, topic, n: Answer(0.5 if step == 3 else 0.01)).play(8)
    assert not slow.wrong and not slow.timeouts and not slow.exchange.unmatched


@pytest.mark.parametrize("stamped", [[False], [False, False], [True, False]])
def test_a_command_after_the_timeout_is_waited_for_and_dropped(stamped):
    late = Network(stamped, lambda step, topic, n: Answer(1.7 if step == 3 else 0.01)).play(8)
    assert late.taken[2] == () and late.timeouts == 1 and not late.wrong
    assert not late.exchange.unmatched


def test_a_command_that_never_comes_is_reported_once_and_the_next_step_takes_its_own():
    lost = Network([False], lambda step, topic, n: Answer(lost=step in (3, 5))).play(8)
    assert lost.timeouts == 2 and not lost.wrong and lost.exchange.unmatched == 2
    (report,) = lost.reports
    assert "no command on /topic_0 came for a step, even late" in report


def test_a_policy_that_answers_twice_at_once_is_reported_and_each_step_takes_its_own():
    twice = Network([False], lambda step, topic, n: Answer(again_s=0.0)).play(8)
    assert not twice.wrong and twice.exchange.unmatched == 8
    assert "a command on /topic_0 came that no step was waiting for" in twice.reports[0]


def test_a_policy_that_is_one_command_ahead_from_the_second_step_on_is_found_at_the_end():
    ahead = Network(
        [False], lambda step, topic, n: Answer(0.2, again_s=0.1 if step == 1 else None)
    ).play(8)
    assert ahead.wrong and ahead.exchange.unmatched > 0


def test_a_type_with_a_stamp_that_nobody_fills_counts_as_one_without():
    network = Network([True], lambda step, topic, n: Answer(0.5 if step == 3 else 0.01))
    network._stamped = [False]
    network.play(8)
    assert not network.wrong and not network.timeouts and not network.exchange.unmatched


def test_the_next_episode_begins_without_the_last_ones_command():
    network = Network([False], lambda step, topic, n: Answer(1.9 if step == 8 else 0.01))
    network.play(8)
    first, network.taken = network.taken, []
    network.play(7)
    assert first[7] == () and network.taken == [(step,) for step in range(1, 8)]
    assert not network.exchange.unmatched


def test_an_episode_that_is_broken_off_within_a_step_leaves_no_command_for_the_next_one():
    network = Network([False], lambda step, topic, n: Answer(0.7 if step == 8 else 0.01))
    with pytest.raises(KeyboardInterrupt):
        broken = 0

        def complete() -> bool:
            nonlocal broken
            broken += 1
            raise KeyboardInterrupt

        network.step = 8
        network.exchange.publish_readings_and_measure_latency_s(8, complete)
    assert network.play(7).taken == [(step,) for step in range(1, 8)]
    assert not network.exchange.unmatched
