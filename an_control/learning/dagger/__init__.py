"""Imitation of a teacher by DAgger (Ross et al. 2011)."""
