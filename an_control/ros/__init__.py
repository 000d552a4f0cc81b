"""The policy node and its parts: the only folder of the package that imports rclpy."""

import an_control.system.threads  # noqa: F401
