"""From sensor readings to actuator commands, without rclpy: control step, limits, e-stop."""
