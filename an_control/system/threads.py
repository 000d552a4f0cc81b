"""Set one BLAS thread for a process that runs a policy; import this before numpy.

numpy reads the environment variables only once, when it is imported. The matrix products of a tick
(control step) are small, and several BLAS threads wait for each other at each product. On busy
cores the products of the forward model, which predicts the next readings, took 3.5 ms instead of
0.15 ms. A value that the user has set is kept.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
