"""Serves any gymnasium environment over ROS 2 topics; the scrambler."""
