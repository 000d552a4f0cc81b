"""Offline learning: imitation of a teacher and evaluation. Meets environments through gymnasium."""
