"""Scrambler: reads all channels of a robot and publishes them disturbed on one topic."""
