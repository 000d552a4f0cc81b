"""From readings to commands: the tick, the gate, bring-up and e-stop; needs no rclpy."""
