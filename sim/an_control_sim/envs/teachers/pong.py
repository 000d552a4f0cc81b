"""A player of Pong that reads the console's memory: the teacher of those who only see.

While the ball goes away the stick is held down, so that the paddle waits at the lowest place; when
the ball comes back the stick is held up for as many steps as bring the paddle to one of few places,
where it stands still long before the ball is there. Which place, the player finds by trying on a
copy of the console: the one that scores soonest. So a pupil that is late by some steps, or cannot
see the ball all the time, plays the same rally; a game soon goes round in one; and in each return
the paddle begins at the same place, which a pupil needs who cannot tell a patch of the screen from
the one above it. The button is always pressed: a ball hit with it flies faster.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
from ale_py import Action, ALEInterface

SKIP = 4
BALL_X, BALL_Y, PADDLE_Y = 49, 54, 51
"""Addresses in the console's memory."""
CONTACT_X = 189
TOP, BOTTOM = 44, 203
"""Between them the ball's place is reflected."""
HIGHEST, LOWEST = 38.0, 203.0
"""Of the paddle."""
STICK = 22.66
"""What a step with the stick held moves it; the paddle follows, by half of what is left in each two
frames."""
CORRECTION = 0.7
"""Share of the paddle's surprise that is put down to the stick."""
REACH = (-10.0, 28.0)
"""How far below the paddle's top a ball may be that it can hit."""
RETURNS, LONGEST_RETURN = 3, 100
"""How far a try goes: so often the ball comes, so many steps each."""
STILL, UP, DOWN = 0, -1, 1
BUTTONS = {STILL: Action.FIRE, UP: Action.RIGHTFIRE, DOWN: Action.LEFTFIRE}
PLACES = {STILL: 1, UP: 4, DOWN: 5}
"""Of these buttons in the environment's action."""
TARGETS = tuple(LOWEST - STICK * count for count in range(8))
"""Where the stick can be after so many steps up."""
BEGINS = (0, 150, 165, 175, 182)
"""Where a ball is when the stick moves: at once, or where that never scores, so late that the
paddle still moves when it hits."""


class Seen(NamedTuple):
    """What the memory holds of a step; `x` is 0 where there is no ball in play."""

    x: int
    y: int
    paddle: int

    @classmethod
    def of(cls, console: ALEInterface) -> Seen:
        memory = console.getRAM()
        y = int(memory[BALL_Y])
        return cls(int(memory[BALL_X]) if y else 0, y, int(memory[PADDLE_Y]))


class Aim(NamedTuple):
    """Where to hold the stick, from when the ball is at `begin` on."""

    target: float
    begin: int = 0


class Player:
    """Holds the stick down while the ball goes away, and where it aims while it comes.

    No address tells where the stick is: it follows from what was pressed and what came of it.
    """

    def __init__(self, seen: Seen) -> None:
        self.aim = Aim(LOWEST)
        self._stick = float(seen.paddle)
        self.last = seen

    def comes(self, seen: Seen) -> bool:
        """Whether the ball comes nearer; ask before `move`."""
        return bool(self.last.x) and seen.x > self.last.x

    def move(self, seen: Seen, done: int) -> int:
        """What to do, and what was done in the step before."""
        comes, paddle = self.comes(seen), float(self.last.paddle)
        for _ in range(2):
            paddle += (self._stick - paddle) / 2.0
            self._stick = min(max(self._stick + done * STICK / 2.0, HIGHEST), LOWEST)
        self._stick += CORRECTION * (seen.paddle - paddle)
        self.last = seen
        if not comes or seen.x < self.aim.begin or self.aim.target == LOWEST:
            return DOWN
        off = self.aim.target - self._stick
        return STILL if abs(off) <= STICK / 2.0 else DOWN if off > 0.0 else UP


class PongTeacher:
    """Plays on a console; call `start` after each reset, then the teacher once a step.

    `env` says in `button` what was last pressed, whoever pressed it.
    """

    helps = False
    hopeless = False

    def __init__(self, env: Any) -> None:
        self._env = env
        self._console: ALEInterface = env.console

    def start(self) -> None:
        """Begin a game."""
        self._player = Player(Seen.of(self._console))
        self._said: int | None = None

    def __call__(self) -> np.ndarray:
        """The action (6,) float32, one-hot, for the state that the console is in."""
        seen = Seen.of(self._console)
        done = _direction(self._env.button)
        comes = self._player.comes(seen)
        if comes and done != self._said:
            self._player.aim, _ = self._best(self._player, seen, done, 1)
        move = self._player.move(seen, done)
        self._said = move if comes else None
        action = np.zeros(6, np.float32)
        action[PLACES[move]] = 1.0
        return action

    def _best(self, player: Player, seen: Seen, done: int, leg: int) -> tuple[Aim, float]:
        """What to do while this ball comes, and what that is worth.

        The sooner a point the better, the later one lost. Leaves the console as it was.
        """
        here, arrives = self._console.cloneState(), self._arrival(player.last, seen)
        near = [target for target in TARGETS if REACH[0] <= arrives - target <= REACH[1]]
        best = Aim(min(TARGETS, key=lambda target: abs(arrives - sum(REACH) / 2.0 - target))), -1.0
        for begin in BEGINS if leg == 1 else BEGINS[:1]:
            for aim in sorted((Aim(one, begin) for one in near), key=player.aim.__ne__):
                self._console.restoreState(here)
                tried = copy.copy(player)
                tried.aim = aim
                value = self._value(tried, seen, done, leg)
                if value > best[1]:
                    best = aim, value
                if value == 1.0 / leg:
                    break
            if best[1] > 0.0:
                break
        self._console.restoreState(here)
        return best

    def _arrival(self, last: Seen, seen: Seen) -> float:
        """Where the ball is when it is at the paddle."""
        here = self._console.cloneState()
        while last.x < seen.x < CONTACT_X:
            last, before = seen, last
            self._act(STILL)
            seen = Seen.of(self._console)
        self._console.restoreState(here)
        if seen.x < last.x:  # it was hit
            last, seen = before, last
        share = (CONTACT_X - last.x) / max(seen.x - last.x, 1)
        return _reflected(last.y + share * (seen.y - last.y))

    def _value(self, player: Player, seen: Seen, done: int, leg: int) -> float:
        """What becomes of a ball that comes: a point, or the best of the next return."""
        away = False
        for _ in range(LONGEST_RETURN):
            done = player.move(seen, done)
            if points := self._act(done):
                return points / leg
            seen = Seen.of(self._console)
            comes = player.comes(seen)
            if away and comes:
                return self._best(player, seen, done, leg + 1)[1] if leg < RETURNS else 0.0
            away = away or not comes
        return 0.0

    def _act(self, move: int) -> float:
        return float(sum(self._console.act(BUTTONS[move]) for _ in range(SKIP)))


def _reflected(y: float) -> float:
    """Where a ball is that would be at `y` if there were no walls."""
    span = BOTTOM - TOP
    along = (y - TOP) % (2.0 * span)
    return TOP + min(along, 2.0 * span - along)


def _direction(button: Action) -> int:
    """Up, down or still."""
    if button in (Action.RIGHT, Action.RIGHTFIRE):
        return UP
    return DOWN if button in (Action.LEFT, Action.LEFTFIRE) else STILL
