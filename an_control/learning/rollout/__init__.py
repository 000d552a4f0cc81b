"""Episodes: one at a time, in processes, by Dask, or compiled many side by side."""
