"""A player of Pong that reads the console's memory, a teacher for policies that see pictures.

While the ball moves away the joystick is held down, so that the paddle waits in its lowest row.
When the ball comes back the joystick is held up for a whole number of steps, which brings the
paddle to one of a few rows, where it stops long before the ball arrives. The player tries each of
these rows on a copy of the console, and chooses the one that scores soonest.

Because of this, a student that reacts some steps late, or cannot always see the ball, can play the
same rally, and a game soon repeats itself. The paddle always starts from the same row, which helps
a student that cannot tell a patch of the screen from the one above it. The button is always
pressed, because a ball that is hit with it flies faster.
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
"""Rows between which the ball is reflected."""
HIGHEST, LOWEST = 38.0, 203.0
"""Bounds of the paddle's row."""
STICK = 22.66
"""Rows by which the paddle's target moves if the joystick is held for a step. In every two frames
the paddle covers half of its distance to the target."""
CORRECTION = 0.7
"""Share of the difference between the paddle's real and its predicted row by which the estimate of
its target is corrected."""
REACH = (-10.0, 28.0)
"""Bounds of the distance in rows from the paddle's top down to a ball that it can hit."""
RETURNS, LONGEST_RETURN = 3, 100
"""Length of a trial on the copy of the console: the number of times that the ball is returned, and
the maximum number of steps until each time."""
STILL, UP, DOWN = 0, -1, 1
BUTTONS = {STILL: Action.FIRE, UP: Action.RIGHTFIRE, DOWN: Action.LEFTFIRE}
PLACES = {STILL: 1, UP: 4, DOWN: 5}
"""Index of each move's button in the environment's action."""
TARGETS = tuple(LOWEST - STICK * count for count in range(8))
"""Rows to which a whole number of steps with the joystick up can send the paddle."""
BEGINS = (0, 150, 165, 175, 182)
"""Columns of the ball at which the joystick starts to move: at once or, if that never scores, so
late that the paddle still moves when it hits the ball."""


class ConsoleState(NamedTuple):
    """The state of ball and paddle at a step, read from the console's memory.

    Rows are counted downwards.

    Attributes:
        x: The column of the ball; 0 if no ball is in play.
        y: The row of the ball.
        paddle: The row of the player's paddle.
    """

    x: int
    y: int
    paddle: int

    @classmethod
    def from_console(cls, console: ALEInterface) -> ConsoleState:
        """Read the state of ball and paddle from a console's memory."""
        memory = console.getRAM()
        y = int(memory[BALL_Y])
        return cls(int(memory[BALL_X]) if y else 0, y, int(memory[PADDLE_Y]))


class PaddleAim(NamedTuple):
    """A plan for hitting the next ball: where to move the paddle, and when.

    Attributes:
        target: The row to which the paddle is moved.
        begin: The move begins when the ball has reached this column; 0: at once.
    """

    target: float
    begin: int = 0


class PongPlayer:
    """A player that moves the paddle down while the ball moves away, and aims when it comes back.

    The console moves the paddle towards a row that its memory does not show. The player estimates
    that row from the moves that were made and the motion of the paddle.

    Args:
        seen: The state of ball and paddle at the start of a game.
    """

    def __init__(self, seen: ConsoleState) -> None:
        self.aim = PaddleAim(LOWEST)
        self._stick = float(seen.paddle)
        self.last = seen

    def is_ball_approaching(self, state: ConsoleState) -> bool:
        """Return whether the ball has come nearer since the previous step.

        Call it before `choose_move`, which stores the state as the previous one.

        Args:
            state: The state of ball and paddle now.
        """
        return bool(self.last.x) and state.x > self.last.x

    def choose_move(self, state: ConsoleState, previous_move: int) -> int:
        """Return the next move: UP, DOWN or STILL. Call this once in each step.

        Args:
            state: The state of ball and paddle now.
            previous_move: The move in the previous step, chosen by the teacher or the student.
        """
        comes, paddle = self.is_ball_approaching(state), float(self.last.paddle)
        for _ in range(2):
            paddle += (self._stick - paddle) / 2.0
            self._stick = min(max(self._stick + previous_move * STICK / 2.0, HIGHEST), LOWEST)
        self._stick += CORRECTION * (state.paddle - paddle)
        self.last = state
        if not comes or state.x < self.aim.begin or self.aim.target == LOWEST:
            return DOWN
        off = self.aim.target - self._stick
        return STILL if abs(off) <= STICK / 2.0 else DOWN if off > 0.0 else UP


class PongTeacher:
    """A teacher of Pong that reads the memory of an environment's game console.

    Call `start_episode` after each reset of the environment. Then call this object once before each
    `step` of the environment; it returns the teacher's action. The step may take another action
    instead, such as a student's: the environment itself stores the button that was pressed in
    `env.button`, where the teacher reads it.

    Args:
        env: The `PuzzlePongEnv`, which has the console and the button of its last step.
    """

    is_helping = False
    is_hopeless = False

    def __init__(self, env: Any) -> None:
        self._env = env
        self._console: ALEInterface = env.console

    def start_episode(self) -> None:
        """Forget the previous game, and read the state of the new one."""
        self._player = PongPlayer(ConsoleState.from_console(self._console))
        self._last_move: int | None = None

    def __call__(self) -> np.ndarray:
        """Return the teacher's action (6,) float32 for the next step: 1 for its button, else 0."""
        seen = ConsoleState.from_console(self._console)
        previous_move = _convert_button_to_move(self._env.button)
        comes = self._player.is_ball_approaching(seen)
        if comes and previous_move != self._last_move:
            self._player.aim, _ = self._find_best_aim_and_value(
                self._player, seen, previous_move, 1
            )
        move = self._player.choose_move(seen, previous_move)
        self._last_move = move if comes else None
        action = np.zeros(6, np.float32)
        action[PLACES[move]] = 1.0
        return action

    def _find_best_aim_and_value(
        self, player: PongPlayer, state: ConsoleState, previous_move: int, hit_number: int
    ) -> tuple[PaddleAim, float]:
        """Try several plans for hitting the approaching ball; return the best one and its value.

        The plans are tried on the console; afterwards it is set back to its present state. See
        `_play_until_next_hit_and_evaluate_aim` for the value of a plan.

        Args:
            player: The player, whose present plan is tried first.
            state: The state of ball and paddle now.
            previous_move: The move that was made in the previous step.
            hit_number: 1 for the player's next hit of the ball, 2 for the hit after it, and so on.
        """
        here = self._console.cloneState()
        arrives = self._predict_ball_row_at_paddle_column(player.last, state)
        near = [target for target in TARGETS if REACH[0] <= arrives - target <= REACH[1]]
        best = (
            PaddleAim(min(TARGETS, key=lambda target: abs(arrives - sum(REACH) / 2.0 - target))),
            -1.0,
        )
        for begin in BEGINS if hit_number == 1 else BEGINS[:1]:
            for aim in sorted((PaddleAim(one, begin) for one in near), key=player.aim.__ne__):
                self._console.restoreState(here)
                tried = copy.copy(player)
                tried.aim = aim
                value = self._play_until_next_hit_and_evaluate_aim(
                    tried, state, previous_move, hit_number
                )
                if value > best[1]:
                    best = aim, value
                if value == 1.0 / hit_number:
                    break
            if best[1] > 0.0:
                break
        self._console.restoreState(here)
        return best

    def _predict_ball_row_at_paddle_column(
        self, previous: ConsoleState, state: ConsoleState
    ) -> float:
        """Return the row of the ball at the time when it reaches the paddle's column.

        The console plays until that time, and is then set back.

        Args:
            previous: The state of ball and paddle one step before.
            state: The state of ball and paddle now.
        """
        here = self._console.cloneState()
        while previous.x < state.x < CONTACT_X:
            previous, before = state, previous
            self._play_step_and_count_points(STILL)
            state = ConsoleState.from_console(self._console)
        self._console.restoreState(here)
        if state.x < previous.x:  # the paddle has hit the ball
            previous, state = before, previous
        share = (CONTACT_X - previous.x) / max(state.x - previous.x, 1)
        return _reflect_ball_row_at_walls(previous.y + share * (state.y - previous.y))

    def _play_until_next_hit_and_evaluate_aim(
        self, player: PongPlayer, state: ConsoleState, previous_move: int, hit_number: int
    ) -> float:
        """Play by the player's plan until a point or the next hit, and return the plan's value.

        The value is 1 / hit_number if the player scores a point, and -1 / hit_number if the player
        loses one. If the opponent hits the ball back, it is the value of the best plan for the
        player's next hit. It is 0 after the last hit that is tried, or if a hit takes too many
        steps. The console stays in the state to which it was played.

        Args:
            player: The player with its plan.
            state: The state of ball and paddle now.
            previous_move: The move that was made in the previous step.
            hit_number: 1 for the player's next hit of the ball, 2 for the hit after it, and so on.
        """
        away = False
        for _ in range(LONGEST_RETURN):
            previous_move = player.choose_move(state, previous_move)
            if points := self._play_step_and_count_points(previous_move):
                return points / hit_number
            state = ConsoleState.from_console(self._console)
            comes = player.is_ball_approaching(state)
            if away and comes:
                return (
                    self._find_best_aim_and_value(player, state, previous_move, hit_number + 1)[1]
                    if hit_number < RETURNS
                    else 0.0
                )
            away = away or not comes
        return 0.0

    def _play_step_and_count_points(self, move: int) -> float:
        """Make a move for one step on the console.

        Args:
            move: UP, DOWN or STILL.

        Returns:
            The points that the player won in this step minus those that it lost.
        """
        return float(sum(self._console.act(BUTTONS[move]) for _ in range(SKIP)))


def _reflect_ball_row_at_walls(unreflected_row: float) -> float:
    """Return the row of a ball that is reflected at the upper and the lower wall.

    Args:
        unreflected_row: The row at which the ball would be if there were no walls.
    """
    span = BOTTOM - TOP
    along = (unreflected_row - TOP) % (2.0 * span)
    return TOP + min(along, 2.0 * span - along)


def _convert_button_to_move(button: Action) -> int:
    """Return the move of the paddle that a button of the console makes: UP, DOWN or STILL."""
    if button in (Action.RIGHT, Action.RIGHTFIRE):
        return UP
    return DOWN if button in (Action.LEFT, Action.LEFTFIRE) else STILL
