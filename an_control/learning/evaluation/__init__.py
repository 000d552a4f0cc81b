"""Evaluation of policies: episodes, tables, plots, and identification of channels."""
