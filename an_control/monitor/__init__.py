"""Unannounced rewiring: which signal is behind which channel, found from the readings alone."""
