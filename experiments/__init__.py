"""Experiments: one folder each, with its claim, its command and its results.

The product (`an_control`, `sim`, `launch`) never imports from here, and nothing here is installed.
"""
