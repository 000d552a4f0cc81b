"""Failing environments: the error that names what failed, and a count of the episodes that did.

An environment may raise anything, at any step. Its episode is left out and another one is played;
only where no episode works is the run ended.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from an_control.system.environment_output import OUTPUT, BrokenEnvironmentError

__all__ = ["BrokenEnvironmentError", "Failures", "failure_of", "shortened"]

MAX_IN_A_ROW = 20
"""Episodes that may fail one after the other before a run is ended."""
MAX_WORDS = 300
"""Characters of an error's text in a message, which may hold thousands of readings."""
_OURS = str(Path(__file__).parents[1])


def failure_of(environment: str, what: str, error: BaseException) -> BrokenEnvironmentError:
    """Return the failure for an error that an environment raised while doing `what`."""
    text = shortened(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    frames = [one for one in traceback.extract_tb(error.__traceback__) if _foreign(one.filename)]
    own = [one for one in frames if "site-packages" not in one.filename] or frames
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return BrokenEnvironmentError(f"environment {environment!r}: {what}: {text}{where}")


def shortened(text: str) -> str:
    """Return a text on one line, cut where it is longer than a message may be."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_WORDS else f"{text[: MAX_WORDS - 4]} ..."


def _foreign(filename: str) -> bool:
    """Return whether a source file belongs neither to this package nor to gymnasium."""
    return not filename.startswith((_OURS, "<")) and "/gymnasium/" not in filename


class Failures:
    """Counts failing episodes between two metrics lines.

    Attributes:
        count: failed episodes since `figures` was called last.
    """

    def __init__(self) -> None:
        self.count = 0
        self._in_a_row = 0
        self._first = ""

    def note(self, failure: BrokenEnvironmentError) -> None:
        """Count a failed episode; raise the failure itself if too many failed in a row."""
        self.count += 1
        self._in_a_row += 1
        OUTPUT.note(f"an episode failed and is left out: {failure}", "failure")
        self._first = self._first or str(failure)
        if self._in_a_row >= MAX_IN_A_ROW:
            raise BrokenEnvironmentError(f"{failure}; {self._in_a_row} episodes in a row failed")

    def succeed(self) -> None:
        """Note an episode that did not fail."""
        self._in_a_row = 0

    def figures(self) -> dict[str, Any]:
        """Return what a metrics line says of the failures since the last one, {} for none."""
        if not self.count:
            return {}
        line = {"failed": self.count, "failure": self._first}
        self.count, self._first = 0, ""
        return line
