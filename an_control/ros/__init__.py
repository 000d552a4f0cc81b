"""The policy node, which controls a robot; the only folder of an_control that imports rclpy."""

import an_control.system.threads  # noqa: F401
