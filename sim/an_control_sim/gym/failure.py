"""Errors of failing environments, and counts of failed episodes.

An environment may raise any error at any step. Then the episode is left out and another one is
played. The run is ended only if too many episodes fail in a row.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from an_control.system.environment_output import OUTPUT, BrokenEnvironmentError

__all__ = [
    "BrokenEnvironmentError",
    "FailureCounter",
    "make_broken_environment_error",
    "shorten_text",
]

P = ParamSpec("P")
T = TypeVar("T")
MAX_IN_A_ROW = 20
"""Number of consecutive failed episodes after which a run is ended."""
MAX_TEXT = 300
"""Maximum number of characters of an error's text in a message; it may contain thousands of
readings."""
_OURS = str(Path(__file__).parents[1])


def make_broken_environment_error(
    environment: str, activity: str, error: BaseException
) -> BrokenEnvironmentError:
    """Make the BrokenEnvironmentError for an error that an environment raised.

    Args:
        environment: The gymnasium id.
        activity: What the environment was doing, such as "step 3".
        error: The error.
    """
    text = shorten_text(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    frames = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if _is_outside_package_and_gymnasium(one.filename)
    ]
    own = [one for one in frames if "site-packages" not in one.filename] or frames
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return BrokenEnvironmentError(f"environment {environment!r}: {activity}: {text}{where}")


def shorten_text(text: str) -> str:
    """Put a text on one line and cut it to `MAX_TEXT` characters."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 4]} ..."


def _is_outside_package_and_gymnasium(filename: str) -> bool:
    """Return whether a source file belongs neither to an_control_sim nor to gymnasium."""
    return not filename.startswith((_OURS, "<")) and "/gymnasium/" not in filename


class FailureCounter:
    """A counter of training episodes that failed because the environment raised an error.

    It ends the training, by raising the error, if too many episodes fail one after the other.

    Attributes:
        count: The number of failed episodes since the previous call of `pop_failure_metrics`.
    """

    def __init__(self) -> None:
        self.count = 0
        self._in_a_row = 0
        self._first = ""

    def try_episode(self, play: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
        """Play an episode and return its result; count it and return None if the environment fails.

        Args:
            play: The function that plays the episode.
            *arguments: Its arguments.
            **named: Its arguments by name.

        Raises:
            BrokenEnvironmentError: Too many episodes failed one after the other.
        """
        try:
            result = play(*arguments, **named)
        except BrokenEnvironmentError as failure:
            self.count_failure(failure)
            return None
        self.reset_consecutive_failures()
        return result

    def count_failure(self, failure: BrokenEnvironmentError) -> None:
        """Count a failed episode, and tell the user about it.

        Args:
            failure: The error that ended the episode.

        Raises:
            BrokenEnvironmentError: Too many episodes failed one after the other.
        """
        self.count += 1
        self._in_a_row += 1
        OUTPUT.add_note(f"an episode failed and is left out: {failure}", "failure")
        self._first = self._first or str(failure)
        if self._in_a_row >= MAX_IN_A_ROW:
            raise BrokenEnvironmentError(f"{failure}; {self._in_a_row} episodes in a row failed")

    def reset_consecutive_failures(self) -> None:
        """Set the number of consecutive failures to 0; call this after each good episode."""
        self._in_a_row = 0

    def pop_failure_metrics(self) -> dict[str, Any]:
        """Return metrics of the failed episodes since the previous call, and set the count to 0.

        Returns:
            "failed", the number of failed episodes, and "failure", the error text of the first one;
            {} if none failed.
        """
        if not self.count:
            return {}
        line = {"failed": self.count, "failure": self._first}
        self.count, self._first = 0, ""
        return line
