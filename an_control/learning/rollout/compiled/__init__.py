"""Whole episodes in compiled code: policy and dynamics in one loop, many episodes side by side."""
