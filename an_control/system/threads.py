"""Set one BLAS thread for a process that acts; import this before numpy, which reads it once.

The matrix products of a tick are small. Several BLAS threads wait for each other at each of them:
on busy cores the forward model's took 3.5 ms instead of 0.15 ms. A value that the user has set is
kept.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
