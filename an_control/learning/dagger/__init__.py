"""Imitation of a teacher policy by DAgger (dataset aggregation, Ross et al. 2011)."""
