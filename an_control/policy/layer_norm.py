"""Layer norm (Ba et al. 2016), as PyTorch computes it."""

NORM_EPSILON = 1e-5
"""Added to a variance; in image patches to that of pixels scaled to [0, 1]."""
