"""Serving any gymnasium environment over ROS 2 topics."""
