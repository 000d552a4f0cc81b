"""Evaluation of policies: episodes under disturbances, tables and plots."""
