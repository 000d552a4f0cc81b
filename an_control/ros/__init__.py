"""The only place that imports rclpy: the policy node and what it is made of."""

import an_control.system.threads  # noqa: F401
