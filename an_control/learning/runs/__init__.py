"""Runs of learners: folder, checkpoints, metrics, progress, and the model's card."""
