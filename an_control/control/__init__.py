"""From readings to commands: the tick, the gate, bring-up and recovery; needs no rclpy."""
