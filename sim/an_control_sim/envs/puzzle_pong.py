"""Puzzle Pong: Atari Pong as image patches, some of which may be shuffled or hidden.

The task is that of Tang & Ha 2021 (section 4.3). The game console is emulated by the package
ale-py, which includes the game. Preprocessing is that of Mnih et al. 2015: there are up to 30 idle
frames at the start, and each action is held for four frames. The maximum of the final two of these
is converted to gray and scaled to 84x84.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import gymnasium
import numpy as np
from ale_py import Action, ALEInterface, LoggerMode, roms

from an_control_sim.envs.camera import STACK, FrameStack, cut_patches
from an_control_sim.envs.tasks import PONG_TASK

if TYPE_CHECKING:
    from an_control_sim.envs.teachers.pong import PongTeacher

SIDE = 84
SCORE_ROWS = 10
"""Rows of the score at the top, which are hidden."""
MAX_IDLE_FRAMES = 30
SKIP = 4
ACTIONS = (
    Action.NOOP,
    Action.FIRE,
    Action.RIGHT,
    Action.LEFT,
    Action.RIGHTFIRE,
    Action.LEFTFIRE,
)
"""Buttons in the order of the task's actuators; RIGHT moves up."""


class PuzzlePongEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """Pong to 21 points, played on the right side and seen as 196 image patches.

    The observation is (196, 4, 6, 6) uint8: for each patch of 6x6 pixels, in the order of
    `channels`, its newest four gray frames, oldest first. The 10 rows of the score are black. The
    action is (6,); the index of its largest number is the button that is pressed. The reward is +1
    for a point won and -1 for a point lost. Only the number of idle frames at the start is random.

    Args:
        render_mode: "rgb_array" or None.
    """

    channels = PONG_TASK.channels
    actuators = PONG_TASK.actuators
    step_s = PONG_TASK.step_s
    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.console = ALEInterface()
        self.button = Action.NOOP
        self.console.setFloat("repeat_action_probability", 0.0)
        self.console.setInt("random_seed", 0)
        cartridge = roms.get_rom_path("pong")
        assert cartridge is not None
        self.console.loadROM(cartridge)
        self.observation_space = gymnasium.spaces.Box(
            0, 255, (len(self.channels), STACK, 6, 6), np.uint8
        )
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (len(ACTIONS),), np.float32)
        height, width = self.console.getScreenDims()
        self._screens = np.zeros((2, height, width), np.uint8)
        self._stack = FrameStack(SIDE, SIDE)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a game after 1 to 30 frames without a button; the seed determines how many."""
        super().reset(seed=seed)
        self.console.reset_game()
        self.button = Action.NOOP
        for _ in range(int(self.np_random.integers(1, MAX_IDLE_FRAMES + 1))):
            self.console.act(Action.NOOP)
        self.console.getScreenGrayscale(self._screens[0])
        self._stack.fill_with_frame(_make_frame(self._screens[0]))
        return cut_patches(self._stack.frames), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Press a button for four frames (1/15 s): the one whose number in the action is largest.

        Raises:
            ValueError: The action is not six finite numbers.
        """
        action = np.asarray(action, np.float64)
        if action.shape != (len(ACTIONS),) or not np.isfinite(action).all():
            raise ValueError(f"action {action!r} is not {len(ACTIONS)} finite numbers")
        self.button = button = ACTIONS[int(np.argmax(action))]
        reward = 0.0
        for frame in range(SKIP):
            reward += self.console.act(button)
            if frame >= SKIP - 2:
                self.console.getScreenGrayscale(self._screens[frame - SKIP + 2])
        self._stack.add_frame(_make_frame(self._screens.max(axis=0)))
        over = self.console.game_over(with_truncation=False)
        return cut_patches(self._stack.frames), reward, over, False, {}

    def sensors(self) -> dict[str, np.ndarray]:
        """Return the camera's picture (84, 84) in gray, by the name "camera"."""
        return {"camera": self._stack.frames[-1]}

    @property
    def frames(self) -> np.ndarray:
        """The newest four gray frames (4, 84, 84), oldest first."""
        return self._stack.frames

    def teacher(self) -> PongTeacher:
        """Return a player from which policies can learn; it reads this console's memory."""
        from an_control_sim.envs.teachers.pong import PongTeacher

        return PongTeacher(self)

    def render(self) -> np.ndarray | None:
        """Return the screen (210, 160, 3) in RGB, or None without a render mode."""
        return self.console.getScreenRGB() if self.render_mode else None


def _make_frame(screen: np.ndarray) -> np.ndarray:
    """Scale a gray screen (210, 160) to a frame (84, 84), and make the rows of the score black."""
    frame = np.asarray(cv2.resize(screen, (SIDE, SIDE), interpolation=cv2.INTER_AREA))
    frame[:SCORE_ROWS] = 0
    return frame
