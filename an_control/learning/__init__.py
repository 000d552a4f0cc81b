"""Offline learning: training, imitation and evaluation of policies in gymnasium environments."""
