"""Rollouts in compiled code: policies and physics for many episodes at once."""
