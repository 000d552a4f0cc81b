"""The only place that imports rclpy: the policy node and what it is made of."""
