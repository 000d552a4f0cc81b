"""What is slow at its first use, used once a node is configured: no tick may be the first.

A tick that takes a few periods longer than the others makes the watchdog send the safe command, and
whatever arrives meanwhile is late.
"""

from __future__ import annotations

import inspect

from rclpy.impl.rcutils_logger import RcutilsLogger

from an_control.control.controller import Controller
from an_control.system.garbage import freeze_garbage_again


def get_ready(logger: RcutilsLogger, controller: Controller) -> None:
    """Log what is configured, and do what else would delay the first ticks."""
    # rclpy finds the line that logs by `inspect`, which at its first use visits all modules: 40 to
    # 180 ms. A line below the logger's level does not get that far.
    inspect.getframeinfo(inspect.currentframe())  # type: ignore[arg-type]
    logger.info(f"configured: {controller.summary()}")
    freeze_garbage_again()
