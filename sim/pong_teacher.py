"""A player of Pong that reads the console's memory: the teacher of those who only see.

The button is always pressed: a ball hit with it flies faster. When the ball comes, the player
tries on a copy of the console which part of the paddle to hit it with, and takes the first that
scores, or else the first that does not lose. When it has played the ball it goes to the lowest
place and waits: a pupil cannot tell a patch of the screen from the one above it, but need not when
all that it has to do there is to hold the stick down, and each return begins at the same place. A
game soon goes round in a circle of one scoring rally. The paddle follows the stick with a lag; a
model of it says when to move so that it is in place in time.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
from ale_py import Action, ALEInterface

SKIP = 4
BALL_X, BALL_Y, ENEMY_Y, PADDLE_Y = 49, 54, 50, 51
"""Addresses in the console's memory."""
CONTACT_X = 189
TOP, BOTTOM = 44, 203
"""Between them the ball's place is reflected."""
HIGHEST, LOWEST = 38, 203
"""Of the paddle."""
STICK = 11.33
"""What two frames with the stick held move it."""
CORRECTION = 0.7
"""Share of the paddle's surprise that is put down to the stick."""
HITS = (17, 15, 1, 14, 0, 3, 12, 6, 9)
"""Places on the paddle to hit the ball with, from its top; its ends make the steepest angles."""
NEAR_X = 80
BACK_X = 120
RETURNS, LONGEST_RALLY = 2, 140
"""How far a try goes: so often the ball comes back, so many steps."""
STILL, UP, DOWN = 0, -1, 1
BUTTONS = {STILL: Action.FIRE, UP: Action.RIGHTFIRE, DOWN: Action.LEFTFIRE}
PLACES = {STILL: 1, UP: 4, DOWN: 5}
"""Of these buttons in the environment's action."""
PLANS = np.array(
    [(STILL, 0, 0)]
    + [(move, wait, count) for wait in range(15) for move in (DOWN, UP) for count in range(1, 10)]
).T
"""To wait so many steps, then hold the stick in this direction for so many: (3, plans)."""


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


class Stick:
    """Where the stick is held, which no address tells: by what was pressed and what came of it."""

    def __init__(self, paddle: float) -> None:
        self.place = paddle
        self._expected = paddle

    def path(self, paddle: float, moves: np.ndarray) -> np.ndarray:
        """The paddle's places (1 + 2 T, P) after each two frames of P plans' moves (T, P)."""
        stick = np.full(moves.shape[1], self.place)
        places = [np.full(moves.shape[1], float(paddle))]
        for move in np.repeat(STICK * moves, 2, axis=0):
            stick = np.clip(stick + move, HIGHEST, LOWEST)
            places.append(places[-1] + (stick - places[-1]) / 2.0)
        return np.array(places)

    def see(self, paddle: float) -> None:
        """Correct by where the paddle is."""
        self.place += CORRECTION * (paddle - self._expected)

    def press(self, paddle: float, move: int) -> None:
        """Note what is done in this step."""
        self._expected = float(self.path(paddle, np.array([[move]]))[-1, 0])
        self.place = min(max(self.place + 2.0 * STICK * move, HIGHEST), LOWEST)


class Player:
    """Brings the paddle to where the ball will come, so that it hits at `hit` from the top."""

    def __init__(self, seen: Seen) -> None:
        self.hit = float(HITS[0])
        self._stick = Stick(seen.paddle)
        self._last = seen
        self._planned = STILL
        self._plan: list[int] | None = None

    def move(self, seen: Seen, done: int) -> int:
        """What to do, and what was done in the step before."""
        last, self._last = self._last, seen
        self._stick.press(last.paddle, done)
        self._stick.see(seen.paddle)
        if not _comes(last, seen):
            self._plan = None
            self._planned = DOWN
        elif seen.x >= CONTACT_X:
            self._planned = STILL
        else:
            if self._plan is None or done != self._planned:
                self._plan = self._plan_for(last, seen)
            self._planned = self._plan.pop(0) if self._plan else STILL
        return self._planned

    def comes(self, seen: Seen) -> bool:
        """Whether the ball is near and comes nearer; ask before `move`."""
        return _comes(self._last, seen)

    def _plan_for(self, last: Seen, seen: Seen) -> list[int]:
        """To wait, then to hold one direction: the plan that ends nearest."""
        steps = (CONTACT_X - seen.x) / (seen.x - last.x)
        goal = _reflected(seen.y + (seen.y - last.y) * steps) - self.hit
        whole = int(steps) + 2
        move, wait, count = PLANS[:, PLANS[1:].sum(axis=0) <= whole]
        step = np.arange(whole + 1)[:, None]
        held = np.where((step >= wait) & (step < wait + count), move, STILL)
        places = self._stick.path(seen.paddle, held)
        at = int(2.0 * steps)
        part = 2.0 * steps - at
        there = places[at] * (1.0 - part) + places[at + 1] * part
        rush = np.abs(places[at + 1] - places[max(at - 1, 0)]) / 2.0
        cost = np.abs(there - goal) + 0.3 * rush + 0.05 * count + 0.02 * wait
        return [int(moved) for moved in held[:, cost.argmin()]]


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
        self._thought = False

    def __call__(self) -> np.ndarray:
        """The action (6,) float32, one-hot, for the state that the console is in."""
        seen = Seen.of(self._console)
        done = _direction(self._env.button)
        if not self._player.comes(seen):
            self._thought = False
        elif not self._thought:
            self._thought = True
            self._player.hit = self._best_hit(seen, done)
        action = np.zeros(6, np.float32)
        action[PLACES[self._player.move(seen, done)]] = 1.0
        return action

    def _best_hit(self, seen: Seen, done: int) -> float:
        here = self._console.cloneState()
        kept = []
        for hit in HITS:
            player = copy.deepcopy(self._player)
            player.hit = float(hit)
            points = self._rally(player, seen, done)
            self._console.restoreState(here)
            if points > 0:
                return float(hit)
            if not points:
                kept.append(float(hit))
        return kept[0] if kept else float(HITS[0])

    def _rally(self, player: Player, seen: Seen, done: int) -> float:
        """Points that this player makes until the ball has come back twice: 1, 0 or -1."""
        returns, away = 0, False
        for _ in range(LONGEST_RALLY):
            done = player.move(seen, done)
            points = sum(self._console.act(BUTTONS[done]) for _ in range(SKIP))
            if points:
                return float(points)
            before, seen = seen.x, Seen.of(self._console)
            if 0 < seen.x < before:
                away = True
            elif away and seen.x > max(before, BACK_X):
                returns, away = returns + 1, False
            if returns == RETURNS:
                break
        return 0.0


def _comes(last: Seen, seen: Seen) -> bool:
    return bool(last.x) and seen.x > last.x and seen.x >= CONTACT_X - NEAR_X


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
