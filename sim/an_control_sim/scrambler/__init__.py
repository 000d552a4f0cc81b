"""Disturbs a robot behind its topics: reads all channels, publishes them disturbed."""
